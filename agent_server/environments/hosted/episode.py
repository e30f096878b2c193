"""The server's side of an environment that runs in a process of its own.

- `start`, `step`, `solve` and `grade` send a request and wait for its answer. Meanwhile this
  thread, the attempt's, does what the environment asks of its sandboxes and rewards.
- `kill` ends the process, all that it started, and the wait, whatever state the process is in.
"""

from typing import TypeVar

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.process import HostedProcess, HostUnavailable
from agent_server.environments.hosted.sandboxes import Sandboxes
from agent_server.environments.protocol import (
    EnvironmentFailed,
    EnvironmentKilled,
    Observation,
    Opening,
    Response,
)
from agent_server.rewards.grading import answer_to
from agent_server.rewards.protocol import Rewards
from agent_server.sandbox.protocol import Sandbox, SandboxUnavailable
from rollyard.errors import RollyardError
from rollyard.messages import Grade, Prompt

F = TypeVar("F", bound=frames.Frame)


class HostedEpisode:
    """An `Episode` in a process that has not begun yet."""

    def __init__(self, process: HostedProcess, rewards: Rewards) -> None:
        self._process = process
        self._rewards = rewards
        self._sandboxes: Sandboxes | None = None
        self._end_reason: RollyardError | None = None
        """Error that ended the episode; every later call raises it again."""

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._sandboxes = Sandboxes(sandbox)
        self._process.begin()
        return self._call(frames.StartFrame(prompt), frames.Opened).opening

    def step(self, response: Response) -> Observation:
        return self._call(frames.StepFrame(response), frames.Observed).observation

    def solve(self) -> None:
        self._call(frames.Solve(), frames.Solved)

    def grade(self) -> Grade:
        return self._call(frames.GradeFrame(), frames.Graded).grade

    @property
    def patch(self) -> str | None:
        return None  # others' environments are not asked

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.close()

    def _call(self, request: frames.Frame, wanted: type[F]) -> F:
        """The answer to `request`. Raises the errors of an `Episode`."""
        if self._end_reason is not None:
            raise self._end_reason
        try:
            answer = self._process.exchange(request)
            while isinstance(answer, frames.SandboxRequest | frames.ScoreFrame):
                answer = self._process.exchange(self._served(answer))
        except frames.BadFrame as error:
            if self._process.killed:
                raise EnvironmentKilled("the environment was killed") from error
            raise EnvironmentFailed(f"the environment spoilt its connection: {error}") from error
        if isinstance(answer, wanted):
            return answer
        if isinstance(answer, frames.Failed):
            raise (SandboxUnavailable if answer.unavailable else EnvironmentFailed)(answer.reason)
        if answer is None:
            self._end_reason = self._end()
        else:
            said = type(answer).__name__
            self._end_reason = EnvironmentFailed(f"the environment answered with a {said}")
        raise self._end_reason

    def _served(self, request: frames.SandboxRequest | frames.ScoreFrame) -> frames.Frame:
        """The server's answer to a request of the environment."""
        if isinstance(request, frames.ScoreFrame):
            return answer_to(request.task, self._rewards.score)
        assert self._sandboxes is not None
        return self._sandboxes.answer(request)

    def _end(self) -> RollyardError:
        """The error for the call during which the process ended."""
        if self._process.killed:
            return EnvironmentKilled("the environment was killed")
        if (end := self._process.end()) is None:
            return HostUnavailable("the zygote of the environments is gone")
        return EnvironmentFailed(f"the environment's process {end}")
