"""Agent servers that run Jobs in no time: real HTTP, made-up trajectories."""

import contextlib
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import Flask, Response

from rollyard.errors import Conflict, RollyardError, Unavailable
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    AgentServer,
    Assignment,
    Blame,
    ChatMessage,
    Grade,
    Job,
    Lease,
    Outcome,
    Registered,
    Reported,
    Result,
    Taken,
    Trajectory,
    Turn,
    WeightSpan,
)
from serving.api import new_app, reply
from tests.serving_threads import read, served

Judge = Callable[[Job], float | None]
"""The reward of a Job; None leaves the Job running until it is cancelled, or resumed, when it is
asked for again. What it raises is laid at the Job's row."""


def trajectory_of(job: Job, reward: float) -> Trajectory:
    return Trajectory(
        token_ids=array("i", [1, 2, 3, int(reward * 100)]),
        loss_mask=array("b", [0, 0, 1, 1]),
        logprobs=array("f", [0.0, 0.0, -0.5, -0.25]),
        weight_spans=(WeightSpan(version=0, start=2, end=4),),
        turns=(Turn(start=2, end=4, finish_reason="stop"),),
        messages=(ChatMessage(role="user", content=job.prompt.prompt_id),),
    )


class FakeAgent:
    """Answers every Job at once with the judge's reward."""

    def __init__(self, orchestrator_url: str, judge: Judge) -> None:
        self._orchestrator = Peer(orchestrator_url, name="orchestrator")
        self._judge = judge
        self.running: dict[str, Assignment] = {}
        self.cancelled: list[Lease] = []
        self.cancel_arrived = threading.Event()
        self.parked: list[Lease] = []
        self.park_arrived = threading.Event()
        self.refuses: RollyardError | None = None
        self.sends: Callable[[Result], object] = lambda result: result
        """What it reports in the place of a Result."""
        self.app = new_app("fake-agent")
        self._add_routes(self.app)

    def _add_routes(self, app: Flask) -> None:
        @app.post("/jobs")
        def run_job() -> Response:
            load = read(list[Assignment])
            if self.refuses is not None:
                raise self.refuses
            if any(assignment.lease.slot in self.running for assignment in load):
                raise Conflict("the slot is busy")
            for assignment in load:
                threading.Thread(target=self._finish, args=(assignment,), daemon=True).start()
            return reply(Taken(), 202)

        @app.post("/cancel")
        def cancel() -> Response:
            for lease in read(list[Lease]):
                self.cancelled.append(lease)
                self._taken_off(lease)
                self._report(Result(lease=lease, outcome=Outcome.CANCELLED, error="cancelled"))
            self.cancel_arrived.set()
            return reply(Accepted())

        @app.post("/park")
        def park() -> Response:
            self.parked += read(list[Lease])
            self.park_arrived.set()
            return reply(Accepted())

        @app.post("/resume")
        def resume() -> Response:
            for lease in read(list[Lease]):
                if assignment := self._taken_off(lease):
                    self._finish(assignment)
            return reply(Accepted())

    def _taken_off(self, lease: Lease) -> Assignment | None:
        """What ran under the Lease; None if that is over, and its Slot may have another Job."""
        running = self.running.get(lease.slot)
        if running is None or running.lease != lease:
            return None
        return self.running.pop(lease.slot)

    def _finish(self, assignment: Assignment) -> None:
        lease = assignment.lease
        try:
            reward = self._judge(assignment.job)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._report(
                Result(lease=lease, outcome=Outcome.INFRA_FAILED, error=reason, blame=Blame.ROW)
            )
            return
        if reward is None:
            self.running[lease.slot] = assignment
            return
        trajectory = trajectory_of(assignment.job, reward)
        self._report(
            Result(
                lease=lease,
                outcome=Outcome.COMPLETED,
                grade=Grade(reward=reward),
                trajectory=trajectory,
            )
        )

    def _report(self, result: Result) -> None:
        # the Lease was lost, or the test is over: nothing to do
        with contextlib.suppress(Conflict, Unavailable):
            self._orchestrator.post("/results", [self.sends(result)], list[Reported])


@contextmanager
def fake_agent(
    orchestrator_url: str,
    judge: Judge,
    *,
    server_id: str = "agent-0",
    slots: int = 4,
    environment: str = "arithmetic",
) -> Iterator[FakeAgent]:
    agent = FakeAgent(orchestrator_url, judge)
    with served(agent.app) as url:
        server = AgentServer(server_id=server_id, url=url, slots=slots, environments=(environment,))
        Peer(orchestrator_url, name="orchestrator").post("/servers", server, Registered)
        yield agent
