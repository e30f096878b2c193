"""One running Lease: its stage, what it holds, and how it is told to stop.

An attempt ends once: the first of its Results is the Result, whoever makes it.
"""

import threading
import time
from enum import StrEnum

from agent_server.deadline import Deadline
from agent_server.environments.protocol import Episode, MakeEpisode
from agent_server.parking import Parking
from agent_server.sandbox.protocol import Sandbox
from agent_server.stop import Stopped, StopReason, StopSignal
from rollyard.messages import Assignment, ChatMessage, Job, Lease, Timings, Trajectory


class Stage(StrEnum):
    INIT = "init"
    RUN = "run"
    EVAL = "eval"


class Attempt:
    def __init__(self, assignment: Assignment, make_episode: MakeEpisode) -> None:
        self.job: Job = assignment.job
        self.lease: Lease = assignment.lease
        self.episode: Episode = make_episode()
        self.sandbox: Sandbox | None = None
        self.opening: tuple[ChatMessage, ...] = ()
        self.trajectory: Trajectory | None = None
        self.reward: float | None = None
        self.stage = Stage.INIT
        self.deadline: Deadline | None = None
        """Of the stage."""
        self.parking = Parking(self.job.limits.parked_seconds)
        self._lock = threading.Lock()
        self._stop = StopSignal()
        self._cancelled = False
        self._ended = False
        self._seconds = dict.fromkeys(Stage, 0.0)

    @property
    def name(self) -> str:
        """Unique among attempts; names the trajectory to the LLM servers."""
        return f"{self.lease.job_id}-a{self.lease.attempt}"

    @property
    def key(self) -> tuple[str, int]:
        return self.lease.job_id, self.lease.attempt

    @property
    def ended(self) -> bool:
        """Whether its Result is made, even if its thread is still busy."""
        return self._ended

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @property
    def timings(self) -> Timings:
        return Timings(
            init_seconds=self._seconds[Stage.INIT],
            run_seconds=self._seconds[Stage.RUN],
            eval_seconds=self._seconds[Stage.EVAL],
            parked_seconds=self.parking.seconds,
        )

    def enter(self, stage: Stage) -> StopSignal:
        """Begin a stage; its signal is already given when the attempt was cancelled before."""
        with self._lock:
            self.stage = stage
            self._stop = StopSignal()
            if self._cancelled:
                self._stop.stop(StopReason.CANCELLED)
            return self._stop

    def spent(self, stage: Stage, since: float) -> float:
        """Note and return the seconds the stage has worked since `since` on the monotonic clock."""
        parked = self.parking.seconds if stage is Stage.RUN else 0.0  # nothing else is parked
        self._seconds[stage] = max(0.0, time.monotonic() - since - parked)
        return self._seconds[stage]

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            stop = self._stop
        stop.stop(StopReason.CANCELLED)

    def check(self) -> None:
        """Raise `Stopped` when it was cancelled."""
        if self._cancelled:
            raise Stopped(StopReason.CANCELLED)

    def interrupt(self) -> None:
        """End what runs for it when it was stopped. A tool that is cut off at the end of its time
        leaves an episode that can be graded, so that this one is spared then, for `overrun`."""
        if self.sandbox is not None:
            self.sandbox.close()
        if self._cancelled or self.stage is not Stage.RUN:
            self.episode.kill()

    def overrun(self) -> None:
        """End an episode that does not come back although its time is over."""
        self.episode.kill()

    def end(self) -> bool:
        """Whether this is the first time it ends."""
        with self._lock:
            first = not self._ended
            self._ended = True
            return first
