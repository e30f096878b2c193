"""The stand-in for the rewards of a server that grades nothing."""

from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import Unavailable
from rollyard.messages import Grade


class NoRewards:
    """`Rewards` that grade nothing."""

    def score(self, task: ScoreTask) -> Grade:
        raise Unavailable(f"no rewards are served here, and {task.data_source!r} needs them")


NO_REWARDS = NoRewards()
