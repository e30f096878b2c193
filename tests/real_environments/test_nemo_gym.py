"""Resources servers that the real nemo-gym package brings, with the rows that it brings."""

import json
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import in_thread
from agent_server.environments.nemo_gym import NemoGym
from rollyard.messages import Blame, Limits, Outcome
from tests.agent_server.fakes import assign, make_job, said
from tests.agent_server.running import Start
from tests.real_environments.conftest import TOOLS, StartTheirs, TheirServer
from tests.real_environments.episodes import DiesBefore, begun, calling, told

COUNTER = ("example_session_state_mgmt", "StatefulCounterResourcesServer")
CHOICES = ("mcqa", "MCQAResourcesServer")


def row(server: TheirServer, name: str) -> dict[str, Any]:
    """The first example of the resources server of this name."""
    (examples,) = TOOLS.glob(
        f"nemo-gym/lib/*/site-packages/resources_servers/{name}/data/example.jsonl"
    )
    first: dict[str, Any] = json.loads(examples.read_text().splitlines()[0])
    return first | {"data_source": "nemo_gym", "url": server.url}


@pytest.fixture(scope="module")
def counter(theirs: StartTheirs) -> TheirServer:
    return theirs.nemo_gym(*COUNTER)


@pytest.fixture(scope="module")
def choices(theirs: StartTheirs) -> TheirServer:
    return theirs.nemo_gym(*CHOICES)


@pytest.mark.parametrize(("letter", "reward"), [("B", 1.0), ("C", 0.0)])
def test_a_choice_is_verified(choices: TheirServer, letter: str, reward: float) -> None:
    with begun(NemoGym, row(choices, CHOICES[0])) as (episode, opening):
        assert not opening.tools
        assert episode.step(said(rf"It is \boxed{{{letter}}}")).done
        assert episode.grade().reward == reward


@pytest.mark.parametrize(("second", "reward"), [(2, 1.0), (5, 0.0)])
def test_tools_change_the_session_that_is_verified(
    counter: TheirServer, second: int, reward: float
) -> None:
    with begun(NemoGym, row(counter, COUNTER[0])) as (episode, opening):
        assert {tool.name for tool in opening.tools} == {"increment_counter", "get_counter_value"}
        for count in (1, second):
            assert json.loads(told(episode, calling("increment_counter", count=count))) == {
                "success": True
            }
        assert json.loads(told(episode, calling("get_counter_value"))) == {"count": 4 + second}
        assert episode.step(said("Done.")).done
        assert episode.grade().reward == reward


def test_a_call_that_does_not_fit_is_told_and_changes_nothing(counter: TheirServer) -> None:
    with begun(NemoGym, row(counter, COUNTER[0])) as (episode, _):
        assert "count" in told(episode, calling("increment_counter", count="x"))
        assert json.loads(told(episode, calling("get_counter_value"))) == {"count": 3}


def test_sessions_are_apart(counter: TheirServer) -> None:
    first = row(counter, COUNTER[0])
    with begun(NemoGym, first) as (one, _), begun(NemoGym, first) as (other, _):
        told(one, calling("increment_counter", count=3))
        one.step(said("Done."))
        other.step(said("Done."))
        assert (one.grade().reward, other.grade().reward) == (1.0, 0.0)


def test_a_server_that_dies_in_mid_episode_is_never_scored(
    theirs: StartTheirs, template: ChatTemplate, start: Start
) -> None:
    call = {"name": "get_counter_value", "arguments": {}}
    policy = DiesBefore(template, f"<tool_call>{json.dumps(call)}</tool_call>", "Six.")
    policy.server = theirs.nemo_gym(*COUNTER)
    running = start(policy, hosted={"nemo_gym": in_thread(NemoGym)})
    limits = Limits(max_turns=4, max_tokens=4096, job_seconds=60)  # its tools are told in tokens
    job = make_job(instance=row(policy.server, COUNTER[0]), limits=limits)
    running.runner.accept(assign(job))
    result = running.result()
    assert (result.outcome, result.reward) == (Outcome.INFRA_FAILED, None), result.error
    assert (result.blame, len(policy.requests)) == (Blame.SERVER, 2), result.error
