"""The reward service over HTTP."""

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from reward_service.__main__ import parse
from reward_service.app import create_app
from reward_service.service import RewardService
from rollyard.errors import InvalidMessage, LaunchError
from rollyard.tokens import parse_tokens
from tests.reward_service.running import TOKENS, MakeService

TASK = {"data_source": "same", "solution_str": "42", "ground_truth": "42"}


@pytest.fixture
def client(service: RewardService) -> FlaskClient:
    return create_app(service).test_client()


def test_a_task_in_the_public_fields_gets_a_public_answer(client: FlaskClient) -> None:
    answer = client.post("/compute_score", json={**TASK, "solution_str": "41"})
    assert answer.status_code == 200
    said = answer.get_json()
    assert (said["score"], said["components"], said["reason"]) == (0, {"same": 0}, "expected 42")


def test_a_list_is_a_batch(client: FlaskClient) -> None:
    wrong = {**TASK, "data_source": "raises"}
    right, failed = client.post("/compute_score", json=[TASK, wrong]).get_json()
    assert right["score"] == 1.0
    assert "score" not in failed
    assert failed["failure"]["code"] == "GraderFailed"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"data_source": "verse"}, 422, "GraderFailed"),
        ({"data_source": "raises"}, 422, "GraderFailed"),
        ({"data_source": "lacks_a_judge"}, 503, "Unavailable"),
        ({"solution_str": 1}, 400, "InvalidMessage"),
        ({"ground_truth": None}, 400, "InvalidMessage"),
    ],
)
def test_what_is_not_graded_has_a_status_by_cause_and_no_score(
    client: FlaskClient, change: dict[str, object], status: int, code: str
) -> None:
    answer = client.post("/compute_score", json={**TASK, **change})
    assert (answer.status_code, answer.get_json()["code"]) == (status, code)
    assert "score" not in answer.get_json()


def test_a_full_queue_says_when_to_come_again(make_service: MakeService) -> None:
    service = make_service(most_tasks=1)
    service._count.enter(1)
    answer = create_app(service).test_client().post("/compute_score", json=TASK)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    service._count.leave()


def test_status_and_metrics_tell_of_tasks_and_workers(client: FlaskClient) -> None:
    client.post("/compute_score", json=TASK)
    assert client.get("/readyz").status_code == 200
    status = client.get("/status").get_json()
    assert status["tasks"] == 0
    assert status["most_workers"] >= status["workers"] >= 1
    assert status["worker_seconds"] > 0
    text = client.get("/metrics").text
    assert f"rollyard_reward_workers {status['workers']}.0" in text
    assert 'rollyard_reward_tasks_total{outcome="graded"}' in text


@pytest.mark.parametrize(("role", "status"), [("worker", 200), ("read", 403), ("other", 401)])
def test_with_tokens_only_workers_and_trainers_may_ask(
    service: RewardService, role: str, status: int
) -> None:
    client = create_app(service, parse_tokens(TOKENS, "the test")).test_client()
    bearer = {"Authorization": f"Bearer {role}-0123456789abcdef"}
    assert client.post("/compute_score", json=TASK, headers=bearer).status_code == status


LINE = ("--port=1", "--redis-url=redis://r:1")


def test_the_command_line_says_how_many_workers_for_how_long(tmp_path: Path) -> None:
    said = parse([*LINE, "--workers=3", "--idle-seconds=7", "--memory-mib=5", "--task-seconds=9"])
    assert (said.service.scaling.most_workers, said.service.scaling.idle_seconds) == (3, 7)
    assert (said.service.limits.data_bytes, said.service.task_seconds) == (5 << 20, 9)


def test_a_service_for_other_machines_needs_tokens() -> None:
    with pytest.raises(LaunchError, match="refusing to listen"):
        parse([*LINE, "--host=0.0.0.0"])


@pytest.mark.parametrize("option", ["--workers=0", "--task-seconds=0", "--most-tasks=0"])
def test_settings_that_grade_nothing_are_refused(option: str) -> None:
    with pytest.raises(InvalidMessage, match="must be positive"):
        parse([*LINE, option])
