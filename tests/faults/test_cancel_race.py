"""Fault 21 of the fault catalogue in docs/reliability.md: a cancellation races a completion.

A Job that an operator cancels as its Result arrives ends in one way: its Group is delivered whole,
or dropped whole. Seeded interleavings of the operator, workers and two collectors, call by call.
"""

from collections import Counter

import pytest

from chaos import work
from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.ids import job_id
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from rollyard.errors import Conflict, NotFound
from rollyard.messages import AgentServer, Heartbeat, JobState, Prompt, Receipt, RunSettings
from tests.faults import moves
from tests.faults.interleaving import for_each_seed, interleave, one_by_one
from tests.faults.scale import scaled, timeout_seconds
from tests.queue_fixtures import QueueMaker

RUN, GROUPS, GROUP_SIZE, SLOTS = "train", 2, 2, 2
SEEDS = 1000
CANCELLED = job_id(RUN, "g0", 0)


class Race:
    def __init__(self, queues: Queues, seed: int) -> None:
        self.seed = seed
        self.queues = queues
        self.cancel_was_taken = False
        self.accepted: Counter[str] = Counter()
        self.over = False
        self._turns = one_by_one(queues)

    def run(self) -> None:
        queues = self.queues
        queues.runs.create(RunSettings(run_id=RUN, group_size=GROUP_SIZE))
        queues.servers.register(
            AgentServer(server_id="a", url="http://x", slots=SLOTS, environments=("chaos",))
        )
        for number in range(GROUPS):
            prompt = Prompt(prompt_id=f"g{number}", instance={"data_source": work.DATA_SOURCE})
            moves.submit(queues, RUN, prompt)
        queues.events.tell(RUN, BatchRequested(batch_id="b", requested_batch_size=GROUPS))
        workers, collectors = [self._work] * SLOTS, [self._collect] * 2
        interleave(self.seed, self._operate, *workers, *collectors, self._watch)
        queues.servers.heartbeat(Heartbeat(server_id="a", leases=()))

    def _operate(self) -> None:
        operators = Operators(self._turns)
        try:
            operators.cancel(CANCELLED)
        except (Conflict, NotFound):  # it had ended
            return
        self.cancel_was_taken = True

    def _work(self) -> None:
        while not self.over:
            assignment = moves.lease(self._turns)
            if assignment is not None:
                job = assignment.lease.job_id
                result = moves.completed(assignment, float(job[-1]))
                self.accepted[job] += moves.report(self._turns, result) is Receipt.ACCEPTED

    def _collect(self) -> None:
        collector = Collector(self._turns.events, self._turns.runs, lambda _: None)
        while not self.over:
            collector.collect(RUN)

    def _watch(self) -> None:
        """Until nothing is left to do."""
        while True:
            run = self._turns.runs.read(RUN)
            busy = run.counters.jobs_queued + run.counters.jobs_leased + run.events_waiting
            operator_is_done = run.state.delivered or self.cancel_was_taken
            if not busy and operator_is_done and run.concluded:
                self.over = True
                return


def fate(queues: Queues, job: str) -> JobState | None:
    """None: dropped with its Group."""
    try:
        return queues.jobs.record(job).state
    except NotFound:
        return None


def check(queues: Queues, seed: int) -> str:
    """Returns how the race ended."""
    race = Race(queues, seed)
    race.run()
    run = queues.runs.read(RUN)
    fates = {member: fate(queues, job_id(RUN, "g0", member)) for member in range(GROUP_SIZE)}
    assert len(set(fates.values())) == 1
    assert (fates[0] is None) == (run.counters.groups_cancelled == 1)
    assert run.counters.groups_kept + run.counters.groups_cancelled == GROUPS
    assert max(race.accepted.values()) == 1
    assert run.counters.jobs_accepted == sum(race.accepted.values())
    assert run.counters.jobs_submitted == run.counters.jobs_accepted + run.counters.jobs_dropped
    assert queues.connection.ask(queues.servers.offer()).free_slots == SLOTS
    if fates[0] is None:
        assert race.cancel_was_taken
        return "cancelled"
    assert fates[0] is JobState.ACCEPTED
    assert len(queues.batches.groups(RUN, "b")) == GROUPS
    return "completed, cancelled too late" if race.cancel_was_taken else "completed"


@pytest.mark.timeout(timeout_seconds(900))
def test_a_job_cancelled_as_it_completes_ends_in_one_way(make_queues: QueueMaker) -> None:
    seeds, ends = scaled(200, SEEDS), Counter[str]()

    def race(seed: int) -> None:
        ends[check(make_queues(Queues, lease_seconds=60), seed)] += 1

    for_each_seed(seeds, race)
    assert sum(ends.values()) == seeds
    assert len(ends) == 3, ends  # the race was a race
