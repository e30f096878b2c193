"""The rewards of an environment as its process sees them: each task is a request to the server."""

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.remote_sandbox import ServerLine
from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import GraderFailed, Unavailable
from rollyard.messages import Grade


class HostedRewards:
    """`Rewards` of the server that holds this process."""

    def __init__(self, line: ServerLine) -> None:
        self._line = line

    def score(self, task: ScoreTask) -> Grade:
        try:
            answer = self._line.exchange(frames.ScoreFrame(task))
        except (frames.BadFrame, ValueError) as error:  # also text that is not Unicode
            raise GraderFailed(f"a task cannot be graded: {error}") from error
        if isinstance(answer, frames.Graded):
            return answer.grade
        if isinstance(answer, frames.Failed) and not answer.unavailable:
            raise GraderFailed(answer.reason)
        reason = answer.reason if isinstance(answer, frames.Failed) else "the server is gone"
        raise Unavailable(reason)
