"""Grading elsewhere: by any service of the public shape, and here while it is away."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from flask import Flask, Response, request

from agent_server.__main__ import parse
from agent_server.rewards.fallback import GRADED_LOCALLY, FallbackRewards
from agent_server.rewards.local import LocalRewards, LocalRewardSettings
from agent_server.rewards.protocol import ScoreTask
from agent_server.rewards.remote import RemoteRewards, RemoteRewardSettings
from launch.free_ports import free_port
from rollyard.errors import GraderFailed, InvalidMessage, Unavailable
from tests.agent_server.rewards.graders import points
from tests.serving_threads import served

TASK = ScoreTask(
    data_source="same",
    solution_str="42",
    ground_truth={"answers": ["42"]},
    extra_info={"index": 7},
)
SAME = ScoreTask(data_source="same", solution_str="42", ground_truth="42")
SURE = {"score": 1.0}


class Function:
    """A function at a URL: it gives its answers one after the other, the last for ever."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []
        self.authorizations: list[str | None] = []

    def app(self) -> Flask:
        app = Flask("function")

        @app.post("/compute_score")
        @app.post("/functions/grade")
        def answer() -> Response:
            self.asked.append(request.get_json())
            self.authorizations.append(request.headers.get("Authorization"))
            status, said = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            body = said if isinstance(said, str) else json.dumps(said)
            return Response(body, status, mimetype="application/json")

        return app


@pytest.fixture
def exits() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def rewards_of(
    function: Function, exits: ExitStack, path: str = "", **changes: Any
) -> RemoteRewards:
    url = exits.enter_context(served(function.app()))
    rewards = RemoteRewards(RemoteRewardSettings(url=url + path, **changes))
    exits.callback(rewards.close)
    return rewards


def nobody(**changes: Any) -> RemoteRewards:
    """The rewards of a service that is not there."""
    url = f"http://127.0.0.1:{free_port()}"
    return RemoteRewards(RemoteRewardSettings(url=url, **changes))


def test_a_task_is_sent_in_the_public_fields(exits: ExitStack) -> None:
    function = Function((200, SURE))
    assert rewards_of(function, exits).score(TASK).reward == 1.0
    (asked,) = function.asked
    assert asked == {
        "data_source": "same",
        "solution_str": "42",
        "ground_truth": {"answers": ["42"]},
        "extra_info": {"index": 7},
    }


@pytest.mark.parametrize("path", ["", "/", "/functions/grade"])
def test_a_url_with_a_path_is_asked_there(exits: ExitStack, path: str) -> None:
    assert rewards_of(Function((200, SURE)), exits, path).score(TASK).reward == 1.0


@pytest.mark.parametrize(
    ("said", "reward"), [({"score": True}, 1.0), ({"score": 0, "acc": "x"}, 0.0), (SURE, 1.0)]
)
def test_any_number_is_a_score_and_what_else_is_said_is_ignored(
    exits: ExitStack, said: Any, reward: float
) -> None:
    assert rewards_of(Function((200, said)), exits).score(TASK).reward == reward


def test_components_metrics_and_reason_come_along(exits: ExitStack) -> None:
    said = {"score": 0.5, "components": {"a": 1}, "metrics": {"b": 2.5}, "reason": "half right"}
    grade = rewards_of(Function((200, said)), exits).score(TASK)
    assert (grade.components, grade.metrics) == ({"a": 1.0}, {"b": 2.5})
    assert grade.reason == "half right"


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_until_it_has_time(exits: ExitStack, status: int) -> None:
    function = Function(*4 * [(status, {"message": "busy"})], (200, SURE))
    assert rewards_of(function, exits).score(TASK).reward == 1.0


def test_a_service_that_stays_busy_is_unavailable_at_the_deadline(exits: ExitStack) -> None:
    busy = Function((503, {"code": "Unavailable", "message": "the queue is full"}))
    with pytest.raises(Unavailable, match="answered 503: the queue is full"):
        rewards_of(busy, exits, task_seconds=1.0).score(TASK)


def test_a_busy_service_that_then_falls_silent_is_said_to_be_busy(exits: ExitStack) -> None:
    release = Event()
    exits.callback(release.set)
    asked = count()
    app = Flask("busy once")

    @app.post("/compute_score")
    def answer() -> Response:
        if next(asked) > 0:
            release.wait(60)
        return Response(
            '{"code": "x", "message": "the queue is full"}', 503, mimetype="application/json"
        )

    url = exits.enter_context(served(app))
    rewards = RemoteRewards(RemoteRewardSettings(url=url, task_seconds=1.0))
    with pytest.raises(Unavailable, match="answered 503: the queue is full"):
        rewards.score(TASK)
    release.set()


@pytest.mark.parametrize(
    "failure",
    [(500, "<html>"), (502, ""), (200, "words"), (200, {"answer": 1}), (200, {"score": "NaN"})],
)
def test_a_service_that_fails_is_asked_a_few_times(
    exits: ExitStack, failure: tuple[int, Any]
) -> None:
    function = Function(failure, failure, (200, SURE))
    assert rewards_of(function, exits).score(TASK).reward == 1.0
    function = Function(failure)
    with pytest.raises(Unavailable):
        rewards_of(function, exits).score(TASK)
    assert len(function.asked) == 3


def test_a_service_that_cannot_be_reached_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="no answer from the reward service at http"):
        nobody().score(TASK)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_task_that_the_service_refuses_is_not_asked_about_again(
    exits: ExitStack, status: int
) -> None:
    function = Function((status, {"code": "x", "message": "no such grader"}))
    with pytest.raises(GraderFailed, match=f"answered {status}: no such grader"):
        rewards_of(function, exits).score(TASK)
    assert len(function.asked) == 1


@pytest.mark.parametrize("status", [302, 401, 403, 404])
def test_a_service_at_the_wrong_address_is_not_asked_again(exits: ExitStack, status: int) -> None:
    function = Function((status, {}))
    with pytest.raises(Unavailable, match=f"answered {status}"):
        rewards_of(function, exits).score(TASK)
    assert len(function.asked) == 1


def test_text_that_is_no_unicode_is_not_sent() -> None:
    task = ScoreTask(data_source="same", solution_str="\ud800", ground_truth="")
    with pytest.raises(GraderFailed, match="cannot be sent"):
        nobody().score(task)


def test_the_services_token_is_sent_to_it_and_never_shown(exits: ExitStack) -> None:
    function = Function((200, SURE))
    rewards_of(function, exits, token="sesame-sesame-sesame").score(TASK)
    assert function.authorizations == ["Bearer sesame-sesame-sesame"]
    assert "sesame" not in repr(RemoteRewardSettings(url="http://x", token="sesame-sesame"))


def fallback(service: RemoteRewards, exits: ExitStack, *graders: str) -> FallbackRewards:
    local = LocalRewards(points(*graders), LocalRewardSettings(processes=1))
    rewards = FallbackRewards(service, local)
    exits.callback(rewards.close)
    return rewards


def test_a_service_that_answers_grades_alone(exits: ExitStack) -> None:
    rewards = fallback(rewards_of(Function((200, {"score": 0.25})), exits), exits, "same")
    grade = rewards.score(SAME)
    assert (grade.reward, grade.metrics) == (0.25, {})


def test_while_the_service_is_away_this_machine_grades_and_says_so(exits: ExitStack) -> None:
    grade = fallback(nobody(), exits, "same").score(SAME)
    assert grade.reward == 1.0
    assert grade.metrics[GRADED_LOCALLY] == 1.0


def test_what_the_service_refuses_is_not_graded_here(exits: ExitStack) -> None:
    refusing = rewards_of(Function((422, {"code": "GraderFailed", "message": "no"})), exits)
    with pytest.raises(GraderFailed, match="answered 422: no"):
        fallback(refusing, exits, "same").score(SAME)


def test_without_a_grader_here_the_services_failure_is_told(exits: ExitStack) -> None:
    with pytest.raises(Unavailable, match="no answer from the reward service"):
        fallback(nobody(), exits).score(SAME)


def test_both_failures_are_told(exits: ExitStack) -> None:
    rewards = fallback(nobody(), exits, "lacks_a_judge")
    task = ScoreTask(data_source="lacks_a_judge", solution_str="", ground_truth="")
    with pytest.raises(Unavailable, match=r"no answer from .*; and here the judge is busy"):
        rewards.score(task)


SERVER = ("--server-id=a", "--orchestrator=http://o:1", "--llm-server=http://l:1", "--model=m")


def test_the_service_and_its_token_are_named_on_the_command_line(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("worker of-the-reward-service\n")
    tokens.chmod(0o600)
    named = ("--reward-url=https://f:1/g", f"--reward-token-file={tokens}", "--reward-seconds=9")
    service = parse([*SERVER, *named]).reward_service
    assert service == RemoteRewardSettings(
        url="https://f:1/g", token="of-the-reward-service", task_seconds=9
    )
    assert parse([*SERVER, "--reward-seconds=9"]).local_rewards.task_seconds == 9
    assert parse(SERVER).reward_service is None


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--reward-url=f:1", "not the URL of a service"),
        ("--reward-seconds=31", r"grading may take 31 s .*; lower --reward-seconds"),
        ("--reward-seconds=0", "must be positive"),
    ],
)
def test_an_option_that_cannot_work_is_refused(option: str, reason: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse([*SERVER, option])
    assert refused.match(reason)
