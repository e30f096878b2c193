"""The server's side of a process that grades."""

import time
from signal import SIGKILL

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.process import HostedProcess
from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import GraderFailed, RollyardError, Unavailable
from rollyard.messages import Grade


class ProcessLost(Unavailable):
    """The end of a process for a reason other than its task."""


class GraderProcess:
    """A process that grades one task at a time, and starts with the first."""

    def __init__(self, process: HostedProcess) -> None:
        self._process = process
        self.tasks = 0
        """Number of tasks that it was given."""

    def score(self, task: ScoreTask, seconds: float) -> Grade:
        """The grade. The process is killed if it takes longer than that, from its start on. Raises
        `GraderFailed` and `Unavailable`, and must then be closed."""
        asked = time.monotonic()
        if self.tasks == 0:
            self._process.begin()
        began = time.monotonic()
        if began - asked >= seconds:
            raise Unavailable("a grader took too long to start")
        self.tasks += 1
        try:
            answer = self._process.exchange(frames.ScoreFrame(task), began + seconds)
        except (frames.BadFrame, ValueError) as error:  # also text that is not Unicode
            raise GraderFailed(f"a task cannot be graded: {error}") from error
        if isinstance(answer, frames.Graded):
            return answer.grade
        if isinstance(answer, frames.Failed):
            raise (Unavailable if answer.unavailable else GraderFailed)(answer.reason)
        raise self._why_none(task, time.monotonic() - began)

    def close(self) -> None:
        self._process.close()

    def _why_none(self, task: ScoreTask, seconds: float) -> RollyardError:
        """The error for a task during which the process ended."""
        grader = f"the grader of {task.data_source!r}"
        if self._process.killed:
            return GraderFailed(f"{grader} did not come back within {seconds:.1f} s")
        if (end := self._process.end()) is None:
            return ProcessLost("the zygote of the graders is gone")
        if end.exit_code == -SIGKILL:  # by the machine, which had no memory, or by a person
            return ProcessLost(f"the process of {grader} {end}")
        return GraderFailed(f"the process of {grader} {end}")
