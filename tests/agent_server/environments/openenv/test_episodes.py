"""Episodes on an OpenEnv server from Job to Result: with the scripted LLM server, and when a server
fails in their middle."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import in_thread
from agent_server.environments.openenv.environment import OpenEnv
from agent_server.llm import LLMClient, LLMSettings
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import Blame, Outcome, Result
from tests.agent_server.environments.openenv.conftest import OpenEnvServer, StartOpenEnv
from tests.agent_server.fakes import Says, assign, make_job
from tests.agent_server.running import Running, Start
from tests.llm_fixtures import StartScriptedLLM
from tests.waiting import until

HOSTED = {"openenv": in_thread(OpenEnv)}
EPISODES = {"Find the four.": ("5", "4"), "Find the six.": ("1", "2", "3")}


@pytest.fixture
def llm(tmp_path: Path, start_scripted_llm: StartScriptedLLM) -> Iterator[LLMClient]:
    replies = tmp_path / "replies.jsonl"
    lines = ({"asks": asks, "scripts": [script]} for asks, script in EPISODES.items())
    replies.write_text("".join(json.dumps(line) + "\n" for line in lines))
    client = LLMClient(LLMSettings(servers=(start_scripted_llm("--replies", str(replies)),)))
    yield client
    client.close()


def result(running: Running, server: OpenEnvServer, question: str) -> Result:
    row = server.row(question=question, observation="prompt")
    running.runner.accept(assign(make_job(instance=row)))
    return running.result()


def test_a_policy_that_wins_is_rewarded_and_one_that_loses_is_not(
    guess: OpenEnvServer, llm: LLMClient, start: Start
) -> None:
    running = start(llm, hosted=HOSTED)
    for question, said in EPISODES.items():
        found = result(running, guess, question)
        assert found.outcome is Outcome.COMPLETED, found.error
        assert found.trajectory is not None
        messages = found.trajectory.messages
        assert tuple(m.content for m in messages if m.role == "assistant") == said
        assert found.reward == float("4" in said)


class DiesBefore(Says):
    """A policy before whose second response the OpenEnv server is killed."""

    server: OpenEnvServer

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        if self.requests:
            self.server.die()
        return super().generate(request, stop)


def test_a_server_that_is_killed_in_mid_episode_fails_the_attempt_without_a_reward(
    start_openenv: StartOpenEnv, template: ChatTemplate, start: Start
) -> None:
    policy = DiesBefore(template, "5", "4")
    policy.server = start_openenv("guess")
    found = result(start(policy, hosted=HOSTED), policy.server, "Find the four.")
    assert (found.outcome, found.reward) == (Outcome.INFRA_FAILED, None)
    assert (found.blame, len(policy.requests)) == (Blame.SERVER, 2)
    assert f"the WebSocket with {policy.server.url}" in found.error


def test_an_exception_of_their_environment_fails_the_attempt_and_is_laid_at_the_row(
    guess: OpenEnvServer, template: ChatTemplate, start: Start
) -> None:
    found = result(start(Says(template, "crash"), hosted=HOSTED), guess, "Find the four.")
    assert (found.outcome, found.reward, found.blame) == (Outcome.INFRA_FAILED, None, Blame.ROW)


def test_an_attempt_that_is_cancelled_ends_its_wait_for_the_server_and_its_session(
    guess: OpenEnvServer, template: ChatTemplate, start: Start
) -> None:
    running = start(Says(template, "hang"), hosted=HOSTED)
    assignment = assign(make_job(instance=guess.row()))
    running.runner.accept(assignment)
    until("a session", lambda: guess.sessions() == 1)
    running.runner.cancel(assignment.lease)
    assert running.result().outcome is Outcome.CANCELLED
    until("no session", lambda: guess.sessions() == 0)
