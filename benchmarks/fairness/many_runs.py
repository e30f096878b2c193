"""What it costs to lease and report a Job with one Run that waits, and with many.

The queues alone, on a durable Redis: as many Jobs wait in all, and results are reported as agent
servers do, each of which brings the next Job: one by one, or those of different Runs together.
"""

import time

from benchmarks.deployment import BODY, new_cluster
from benchmarks.fairness.beside_others import BesideOthers
from benchmarks.workloads import ENVIRONMENT, TRAJECTORY
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState
from rollyard.messages import (
    AgentServer,
    Assignment,
    Criterion,
    Grade,
    Outcome,
    Prompt,
    Result,
    RunSettings,
)

RUNS = 64
SLOTS = 64
GROUP_SIZE = 8
FED_TOGETHER = 64


def measure(jobs: int, rounds: int, together: int) -> BesideOthers:
    """Microseconds of a Job with one Run and with many, which take turns: so many Jobs in each of
    the rounds, `together` Results in one request."""
    measured = BesideOthers()
    with new_cluster() as cluster:
        one, many = (
            _Waiting(Queues(cluster.redis_url, prefix=f"{runs}:"), runs, jobs * (rounds + 1))
            for runs in (1, RUNS)
        )
        for waiting in (one, many):
            waiting.microseconds(jobs, together)  # warms up
        for _ in range(rounds):
            measured.alone.append(one.microseconds(jobs, together))
            measured.beside.append(many.microseconds(jobs, together))
    return measured


class _Waiting:
    """Runs that have Jobs queued, and a server whose Slots work on them."""

    def __init__(self, queues: Queues, runs: int, jobs: int) -> None:
        self._queues = queues
        server = AgentServer(
            server_id="a", url="http://127.0.0.1:9", slots=SLOTS, environments=(ENVIRONMENT,)
        )
        for number in range(runs):
            self._open(f"run-{number}", -(-(jobs + SLOTS) // runs))
        queues.servers.register(server)
        self._working = queues.leases.lease(SLOTS)

    def _open(self, run_id: str, jobs: int) -> None:
        settings = RunSettings(run_id=run_id, group_size=GROUP_SIZE, criterion=Criterion.COMPLETE)
        self._queues.runs.create(settings)
        instance = {"data_source": ENVIRONMENT, "question": BODY}
        groups = [
            Prompt(prompt_id=f"{number:08d}", instance=instance)
            for number in range(-(-jobs // GROUP_SIZE))
        ]
        for first in range(0, len(groups), FED_TOGETHER):
            self._queues.tasks.submit(run_id, groups[first : first + FED_TOGETHER])
        self._queues.events.tell(run_id, BatchRequested(batch_id="b", requested_batch_size=1))
        events = len(groups) + 1
        self._queues.events.conclude(
            run_id, Conclusion(after=0, events=events, state=SamplerState(), decisions=[Open()])
        )

    def microseconds(self, jobs: int, together: int) -> float:
        """Time of a Job, of so many."""
        began = time.perf_counter()
        for _ in range(0, jobs, together):
            ended, self._working = self._working[:together], self._working[together:]
            reported = self._queues.leases.report([_result(each) for each in ended], more=True)
            self._working += [each.assignment for each in reported if each.assignment is not None]
            assert len(self._working) == SLOTS
        return (time.perf_counter() - began) / jobs * 1e6


def _result(assignment: Assignment) -> Result:
    return Result(
        lease=assignment.lease,
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=1.0),
        trajectory=TRAJECTORY,
    )
