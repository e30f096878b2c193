"""What tests let the queues do: Jobs leased and reported, and decisions carried out."""

from array import array

from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion, Moved
from orchestrator.sampling.decisions import AnyDecision, Chosen, Deliver
from orchestrator.sampling.state import SamplerState
from rollyard.messages import (
    BatchReport,
    Grade,
    Lease,
    Outcome,
    Receipt,
    Reported,
    Result,
    ServerCondition,
    Trajectory,
)


def leased(queues: Queues) -> Lease:
    (assignment,) = queues.leases.lease()
    return assignment.lease


def completed(lease: Lease, reward: float = 1.0) -> Result:
    trajectory = Trajectory(
        token_ids=array("i", [1, 2]),
        loss_mask=array("b", [0, 1]),
        logprobs=array("f", [0.0, -0.5]),
        weight_spans=(),
        turns=(),
        messages=(),
    )
    return Result(
        lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=reward), trajectory=trajectory
    )


def failed(lease: Lease) -> Result:
    return Result(lease=lease, outcome=Outcome.INFRA_FAILED, error="the disk is full")


def report(queues: Queues, result: Result, *, more: bool = False) -> Reported:
    (reported,) = queues.leases.report([result], more=more)
    return reported


def is_stale(queues: Queues, result: Result) -> bool:
    return report(queues, result).receipt is Receipt.STALE


def decide(queues: Queues, *decisions: AnyDecision, run_id: str = "train") -> list[Lease]:
    """Conclude all events, and a made-up one, with these decisions; returns the Leases ended."""
    return list(moved_by(queues, *decisions, run_id=run_id).stop)


def moved_by(queues: Queues, *decisions: AnyDecision, run_id: str = "train") -> Moved:
    queues.events.tell(run_id, BatchRequested(batch_id="b", requested_batch_size=1))
    events = len(queues.connection.ask(queues.events.oldest(run_id)))
    return conclude(queues, *decisions, events=events, run_id=run_id)


def conclude(
    queues: Queues,
    *decisions: AnyDecision,
    events: int = 1,
    state: SamplerState | None = None,
    run_id: str = "train",
) -> Moved:
    run = queues.runs.read(run_id)
    state = state or run.state
    for decision in decisions:
        if isinstance(decision, Deliver):
            state.delivered[decision.batch_id] = decision.groups
    conclusion = Conclusion(
        after=run.concluded, events=events, state=state, decisions=list(decisions)
    )
    return queues.events.conclude(run_id, conclusion)


def conditions(queues: Queues) -> dict[str, ServerCondition]:
    """Server id -> how it fares."""
    return {
        status.server_id: status.condition
        for status in queues.connection.ask(queues.servers.statuses())
    }


def delivery(batch_id: str, **members: tuple[int, ...]) -> Deliver:
    """Of these members of these Groups."""
    chosen = tuple(Chosen(group_id=name, members=each) for name, each in members.items())
    return Deliver(batch_id=batch_id, groups=chosen, report=BatchReport())


def assert_conserved(queues: Queues, run_id: str = "train") -> None:
    c = queues.runs.read(run_id).counters
    assert c.jobs_submitted == (
        c.jobs_queued + c.jobs_leased + c.jobs_accepted + c.jobs_dead + c.jobs_dropped
    )
