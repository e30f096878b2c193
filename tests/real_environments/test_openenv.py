"""Servers of the real openenv package, with games of text and of tools."""

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import in_thread
from agent_server.environments.openenv.environment import OpenEnv
from agent_server.environments.protocol import EnvironmentFailed
from rollyard.messages import Blame, Outcome
from tests.agent_server.fakes import assign, make_job, said
from tests.agent_server.running import Start
from tests.real_environments.conftest import StartTheirs, TheirServer
from tests.real_environments.episodes import DiesBefore, begun, calling, told

ROW = {
    "data_source": "openenv",
    "question": "Guess.",
    "observation": "prompt",
    "reset": {"seed": 6},
}


@pytest.fixture(scope="module")
def guess(theirs: StartTheirs) -> TheirServer:
    return theirs.openenv("guess")


@pytest.fixture(scope="module")
def calculator(theirs: StartTheirs) -> TheirServer:
    return theirs.openenv("calculator")


def test_a_game_of_texts_is_won(guess: TheirServer) -> None:
    with begun(OpenEnv, ROW | {"url": guess.url}) as (episode, opening):
        assert opening.messages[0].content == "Guess.\n\nWhich number?"
        assert told(episode, said("5")) == "wrong"
        assert episode.step(said("6")).done
        grade = episode.grade()
    assert grade.reward == 1.0
    assert (grade.metrics["steps"], grade.metrics["ended"]) == (2.0, 1.0)


def test_and_lost(guess: TheirServer) -> None:
    with begun(OpenEnv, ROW | {"url": guess.url}) as (episode, _):
        assert [episode.step(said(word)).done for word in "123"] == [False, False, True]
        assert episode.grade().reward == 0.0


def test_an_environment_that_raises_is_no_reward(guess: TheirServer) -> None:
    with (
        begun(OpenEnv, ROW | {"url": guess.url}) as (episode, _),
        pytest.raises(EnvironmentFailed, match="the board is gone"),
    ):
        episode.step(said("crash"))


def test_a_game_of_tools_is_won(calculator: TheirServer) -> None:
    with begun(OpenEnv, {"data_source": "openenv", "url": calculator.url, "question": "Ten."}) as (
        episode,
        opening,
    ):
        assert {tool.name for tool in opening.tools} == {"add", "finish"}
        assert told(episode, calling("add", number=4)) == "4"
        assert episode.step(calling("add", number=6)).done
        assert episode.grade().reward == 1.0


def test_calls_that_fail_are_told_and_rewarded_as_the_game_stands(calculator: TheirServer) -> None:
    with begun(OpenEnv, {"data_source": "openenv", "url": calculator.url, "question": "Ten."}) as (
        episode,
        _,
    ):
        assert "not before ten" in told(episode, calling("finish"))
        assert "number" in told(episode, calling("add", number="x"))
        assert "no such tool" in told(episode, calling("subtract", number=1))
        assert episode.step(said("I give up.")).done
        assert episode.grade().reward == 0.0


def test_a_server_that_dies_in_mid_episode_is_never_scored(
    theirs: StartTheirs, template: ChatTemplate, start: Start
) -> None:
    policy = DiesBefore(template, "5", "6")
    policy.server = theirs.openenv("guess")
    running = start(policy, hosted={"openenv": in_thread(OpenEnv)})
    running.runner.accept(assign(make_job(instance=ROW | {"url": policy.server.url})))
    result = running.result()
    assert (result.outcome, result.reward) == (Outcome.INFRA_FAILED, None)
    assert (result.blame, len(policy.requests)) == (Blame.SERVER, 2), result.error
