"""Environments that need rewards are made with them."""

import pytest

from agent_server.environments.in_thread import in_thread
from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import EnvironmentFailed, Needs
from agent_server.rewards.protocol import Rewards, ScoreTask
from rollyard.errors import GraderFailed, Unavailable
from rollyard.messages import Grade, Prompt
from tests.agent_server.fakes import EchoEnvironment

TASK = ScoreTask(data_source="riddles", solution_str="an echo", ground_truth="an echo")
PROMPT = Prompt(prompt_id="row", instance={"data_source": "graded"})


class Graded(EchoEnvironment):
    needs = Needs(rewards=True)

    def __init__(self, rewards: Rewards) -> None:
        super().__init__()
        self._rewards = rewards

    def grade(self) -> float:
        return self._rewards.score(TASK).reward


class Half:
    """`Rewards` that find everything half right, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def score(self, task: ScoreTask) -> Grade:
        if self._error is not None:
            raise self._error
        return Grade(reward=0.5)


def test_an_environment_that_needs_rewards_is_made_with_them() -> None:
    episode = in_thread(Graded, Half()).make()
    episode.start(PROMPT, NoSandbox())
    assert episode.grade().reward == 0.5


def test_what_no_machine_can_grade_is_laid_at_the_environment() -> None:
    episode = in_thread(Graded, Half(GraderFailed("no grader for 'riddles'"))).make()
    episode.start(PROMPT, NoSandbox())
    with pytest.raises(EnvironmentFailed, match="no grader for 'riddles'"):
        episode.grade()


@pytest.mark.parametrize("rewards", [Half(Unavailable("no rewards now")), None])
def test_rewards_that_are_not_to_be_had_are_laid_at_the_server(rewards: Rewards | None) -> None:
    kind = in_thread(Graded) if rewards is None else in_thread(Graded, rewards)
    episode = kind.make()
    episode.start(PROMPT, NoSandbox())
    with pytest.raises(Unavailable, match="no rewards"):
        episode.grade()
