"""A Client waits for a token that is not there yet, and says in one sentence what is wrong."""

import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from launch.free_ports import free_port
from rollyard import Client
from rollyard.errors import OrchestratorUnavailable, RollyardError, Unauthorized
from rollyard.left_files import left_for_clients
from rollyard.messages import WeightVersion
from rollyard.tokens import Role, make_token_file, read_tokens
from serving.access import allow
from serving.routes import Routes
from tests.serving_threads import served

MAX_FRAMES = 4
"""The caller's, the method called, and what it shares with all others."""


@pytest.fixture(autouse=True)
def runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ROLLYARD_TOKENS", "ROLLYARD_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    make_token_file(path)
    return path


@pytest.fixture
def url(token_file: Path) -> Iterator[str]:
    routes = Routes("orchestrator", read_tokens(token_file))

    @routes.get("/weights", allow(Role.SUBMIT))
    def version() -> WeightVersion:
        """Weights."""
        return WeightVersion(version=3)

    app: Flask = routes.app
    with served(app) as served_at:
        yield served_at


def shown(error: RollyardError) -> list[traceback.FrameSummary]:
    """What a traceback of the error shows; nothing of what it came from."""
    assert error.__cause__ is None
    assert error.__suppress_context__
    return traceback.extract_tb(error.__traceback__)


def test_a_client_made_while_its_deployment_starts_finds_the_token_that_is_left_then(
    url: str, token_file: Path
) -> None:
    client = Client(url)
    with left_for_clients(url, token_file):
        assert client.weight_version() == 3


def test_a_client_takes_the_token_of_a_deployment_that_was_started_anew(
    url: str, token_file: Path, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier"
    make_token_file(earlier)
    with left_for_clients(url, earlier):
        client = Client(url)
    with left_for_clients(url, token_file):
        assert client.weight_version() == 3


def test_a_token_that_is_never_left_is_one_sentence_that_says_who_leaves_it(url: str) -> None:
    with pytest.raises(Unauthorized, match="none was found; `rollyard up` leaves one") as refused:
        Client(url, patience_seconds=0.2).weight_version()
    assert len(shown(refused.value)) <= MAX_FRAMES


def test_a_token_that_was_given_and_is_refused_is_not_tried_again(url: str) -> None:
    with pytest.raises(Unauthorized, match="is not one of this service's"):
        Client(url, token="never-heard-of-0123456789").weight_version()


def test_an_orchestrator_that_is_away_is_one_sentence_without_its_internals() -> None:
    with (
        Client(f"http://127.0.0.1:{free_port()}", patience_seconds=0.2) as client,
        pytest.raises(OrchestratorUnavailable, match="no answer from orchestrator") as away,
    ):
        client.weight_version()
    assert len(shown(away.value)) <= MAX_FRAMES
