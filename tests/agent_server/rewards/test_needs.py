"""Environments that need rewards are made with them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.environments.in_thread import in_thread
from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import EnvironmentFailed, Episode, Needs
from agent_server.rewards.no_rewards import NO_REWARDS
from agent_server.rewards.protocol import Rewards, ScoreTask
from rollyard.errors import GraderFailed, Unavailable
from rollyard.messages import Grade, Prompt
from tests.agent_server.fakes import EchoEnvironment

TASK = ScoreTask(data_source="riddles", solution_str="an echo", ground_truth="an echo")
PROMPT = Prompt(prompt_id="row", instance={"data_source": "graded"})


class GradedElsewhere(EchoEnvironment):
    needs = Needs(rewards=True)

    def __init__(self, rewards: Rewards) -> None:
        super().__init__()
        self._rewards = rewards

    def grade(self) -> Any:
        return self._rewards.score(TASK)


class Half:
    """`Rewards` that find everything half right, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def score(self, task: ScoreTask) -> Grade:
        if self._error is not None:
            raise self._error
        return Grade(reward=0.5)


Make = Callable[[Rewards], Episode]


@pytest.fixture(scope="module")
def host() -> Iterator[EnvironmentHost]:
    point = EntryPoint("graded", f"{__name__}:GradedElsewhere", "")
    made = EnvironmentHost((point,), ProcessLimits(data_bytes=1 << 28))
    yield made
    made.close()


@pytest.fixture(params=["in a thread", "in a process"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes episodes of `GradedElsewhere`, begun."""
    with ExitStack() as stack:

        def make(rewards: Rewards) -> Episode:
            kind = in_thread(GradedElsewhere, rewards)
            if request.param == "in a process":
                host: EnvironmentHost = request.getfixturevalue("host")
                kind = host.environments(rewards)["graded"]
            episode = kind.make()
            stack.callback(episode.close)
            episode.start(PROMPT, NoSandbox())
            return episode

        yield make


def test_an_environment_that_needs_rewards_is_made_with_them(make: Make) -> None:
    assert make(Half()).grade().reward == 0.5


def test_what_no_machine_can_grade_is_laid_at_the_environment(make: Make) -> None:
    episode = make(Half(GraderFailed("no grader for 'riddles'")))
    with pytest.raises(EnvironmentFailed, match="no grader for 'riddles'"):
        episode.grade()


@pytest.mark.parametrize("rewards", [Half(Unavailable("no rewards now")), NO_REWARDS])
def test_rewards_that_are_not_to_be_had_are_laid_at_the_server(
    make: Make, rewards: Rewards
) -> None:
    episode = make(rewards)
    with pytest.raises(Unavailable, match="no rewards"):
        episode.grade()
