"""Short words for driving a sampler in tests."""

from typing import Any

from orchestrator.events import BatchAcknowledged, BatchRequested, PromptFed, ResultAccepted, Tried
from orchestrator.ids import job_id
from orchestrator.sampling.decisions import AnyDecision, Chosen, Deliver
from orchestrator.sampling.sampler import Sampler
from orchestrator.sampling.state import SamplerState
from rollyard.messages import RunSettings


def new_sampler(**settings: Any) -> Sampler:
    return Sampler(RunSettings(**{"run_id": "r", "group_size": 2, **settings}), SamplerState())


def request(
    sampler: Sampler, size: int, batch_id: str = "b", *, weights: int = 0, **begun: int
) -> list[AnyDecision]:
    """`begun` names members as "group_member"."""
    return sampler.handle(
        BatchRequested(
            batch_id=batch_id,
            requested_batch_size=size,
            weight_version=weights,
            begun={job(*name.split("_")): version for name, version in begun.items()},
        )
    )


def ack(sampler: Sampler, batch_id: str = "b") -> list[AnyDecision]:
    return sampler.handle(BatchAcknowledged(batch_id=batch_id))


def feed(sampler: Sampler, group: str, *, row: str = "", tried: Tried | None = None) -> Any:
    return sampler.handle(PromptFed(group_id=group, row=row, tried=tried))


def result(
    sampler: Sampler,
    group: str,
    member: int,
    reward: float,
    *,
    weights: int = 0,
    seconds: float = 1.0,
) -> list[AnyDecision]:
    return sampler.handle(
        ResultAccepted(
            job_id=job(group, member), reward=reward, weight_version=weights, seconds=seconds
        )
    )


def finish(sampler: Sampler, group: str, *rewards: float, weights: int = 0) -> list[AnyDecision]:
    """Feed a Group and finish all its members; what was decided on the last."""
    feed(sampler, group)
    decisions: list[AnyDecision] = []
    for member, reward in enumerate(rewards):
        decisions = result(sampler, group, member, reward, weights=weights)
    return decisions


def job(group: str, member: int | str) -> str:
    return job_id("r", group, int(member))


def jobs(group: str, *members: int) -> tuple[str, ...]:
    return tuple(job(group, member) for member in members)


def delivered(decisions: list[AnyDecision]) -> tuple[Chosen, ...]:
    """What the one Batch among these decisions has."""
    (batch,) = [each for each in decisions if isinstance(each, Deliver)]
    return batch.groups


def whole(group: str, members: int = 2) -> Chosen:
    return Chosen(group_id=group, members=tuple(range(members)))
