"""The environment of NeMo-Gym's resources servers, with one that is written from their contract."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.environments.in_thread import InThread, in_thread
from agent_server.environments.nemo_gym import NemoGym
from agent_server.environments.protocol import EnvironmentFailed, Opening, Response
from agent_server.llm import LLMClient, LLMSettings
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import Unavailable
from rollyard.messages import Blame, Outcome, Prompt, ToolCall
from tests.agent_server.environments.nemo_gym_server import QUESTION, Counter, row
from tests.agent_server.fakes import SandboxOfNothing, Says, assign, make_job, said
from tests.agent_server.running import Start
from tests.llm_fixtures import StartScriptedLLM
from tests.serving_threads import served

HOSTED = {"nemo_gym": in_thread(NemoGym)}


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def url(counter: Counter) -> Iterator[str]:
    with served(counter.app()) as url:
        yield url


def begun(row: dict[str, Any]) -> tuple[InThread, Opening]:
    episode = InThread(NemoGym)
    return episode, episode.start(Prompt(prompt_id="row", instance=row), SandboxOfNothing())


def calling(name: str, call_id: str = "1", **arguments: Any) -> Response:
    call = ToolCall(call_id=call_id, name=name, arguments=arguments)
    return Response(text="...", calls=(call,))


def test_the_tools_of_the_row_are_routes_of_the_session(url: str) -> None:
    episode, opening = begun(row(url, initial_count=3, expected_count=6))
    assert [tool.name for tool in opening.tools] == ["add"]
    assert opening.messages[0].content == "Add 1, then add 2."
    other, _ = begun(row(url, expected_count=6))
    for count in (1, 2):
        (answer,) = episode.step(calling("add", count=count)).messages
        assert (answer.role, answer.name, json.loads(answer.content)) == (
            *("tool", "add"),
            {"success": True},
        )
    assert episode.step(said("done")).done
    assert episode.grade().reward == 1.0
    assert other.grade().reward == 0.0
    episode.close()


def test_the_verifier_is_told_the_episode_as_one_response(url: str, counter: Counter) -> None:
    episode, _ = begun(row(url, expected_count=2, seconds=5))
    episode.step(Response(text="...", content="I add.", calls=calling("add", count=2).calls))
    episode.step(Response(text="...", content="2", reasoning="It is two."))
    grade = episode.grade()
    (verified,) = counter.verified
    assert {"url", "data_source", "seconds"}.isdisjoint(verified)
    response = verified["response"]
    assert [item["type"] for item in response["output"]] == [
        *("message", "function_call", "function_call_output", "reasoning", "message")
    ]
    assert response["output"][1]["arguments"] == '{"count": 2}'
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert (grade.metrics, grade.reason) == ({"count": 2.0}, "the verifier gave 1")
    episode.close()


def test_an_episode_that_was_cut_off_is_verified_as_incomplete(url: str, counter: Counter) -> None:
    episode, _ = begun(row(url))
    episode.grade()
    assert counter.verified[0]["response"]["status"] == "incomplete"
    episode.close()


@pytest.mark.parametrize(
    ("response", "told"),
    [
        (calling("verify"), "error: there is no such tool; the tools are: add"),
        (calling("add"), "count is missing"),
        (Response(text="{", malformed=("no JSON",)), "error: no JSON"),
    ],
)
def test_a_mistake_of_the_policy_is_told(url: str, response: Response, told: str) -> None:
    episode, _ = begun(row(url))
    observation = episode.step(response)
    assert told in observation.messages[0].content
    assert not observation.done
    episode.close()


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (("add", 500), EnvironmentFailed),
        (("add", 503), Unavailable),
        (("verify", 500), EnvironmentFailed),
        (("verify", 422), EnvironmentFailed),
        (("verify", 502), Unavailable),
    ],
)
def test_a_failure_of_the_server_is_never_scored(
    url: str, counter: Counter, trouble: tuple[str, int], kind: type[Exception]
) -> None:
    episode, _ = begun(row(url))
    counter.trouble = trouble
    act = episode.grade if trouble[0] == "verify" else partial(episode.step, calling("add"))
    with pytest.raises(kind, match="no disk"):
        act()
    episode.close()


def test_a_reward_that_measures_nothing_is_no_reward(url: str) -> None:
    # The stand-in repeats the row in its answer, as servers do.
    episode, _ = begun(row(url, mask_sample=True, failure_reason="the judge is away"))
    with pytest.raises(Unavailable, match="the judge is away"):
        episode.grade()
    episode.close()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"url": "somewhere"}, "is not the URL of a service"),
        ({"seconds": 0}, "seconds must be positive"),
        ({"responses_create_params": {}}, "missing required field `input`"),
        (
            {"responses_create_params": {"input": "?", "tools": [{"name": "verify"}]}},
            "may not be named 'verify'",
        ),
    ],
)
def test_a_row_that_cannot_be_is_refused(url: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        begun(row(url) | fields)


def test_a_row_that_the_server_refuses_says_why(url: str, counter: Counter) -> None:
    counter.trouble = ("seed_session", 422)
    with pytest.raises(EnvironmentFailed, match="the row is refused: RuntimeError"):
        begun(row(url))


@pytest.fixture
def llm(tmp_path: Path, start_scripted_llm: StartScriptedLLM) -> Iterator[LLMClient]:
    replies = tmp_path / "replies.jsonl"
    replies.write_text(json.dumps({"asks": QUESTION["content"], "scripts": [["three"]]}))
    client = LLMClient(LLMSettings(servers=(start_scripted_llm("--replies", str(replies)),)))
    yield client
    client.close()


def test_a_policy_that_wins_is_rewarded_and_one_that_loses_is_not(
    url: str, llm: LLMClient, start: Start
) -> None:
    running = start(llm, hosted=HOSTED)
    for word in ("three", "four"):
        instance = row(url, tools=False, word=word)
        running.runner.accept(assign(make_job(job_id=word, instance=instance)))
        found = running.result()
        assert (found.outcome, found.reward) == (Outcome.COMPLETED, float(word == "three"))


def test_a_server_that_goes_in_mid_episode_fails_the_attempt_without_a_reward(
    counter: Counter, template: ChatTemplate, start: Start
) -> None:
    class Outlives(Says):
        def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
            server.close()
            return super().generate(request, stop)

    with ExitStack() as server:
        instance = row(server.enter_context(served(counter.app())), tools=False)
        running = start(Outlives(template, "three"), hosted=HOSTED)
        running.runner.accept(assign(make_job(instance=instance)))
        found = running.result()
    assert (found.outcome, found.reward, found.blame) == (
        *(Outcome.INFRA_FAILED, None),
        Blame.SERVER,
    )
    assert "/verify: ConnectionError" in found.error
