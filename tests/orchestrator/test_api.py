"""The routes that `rollyard.api` calls are those that the orchestrator declares for its callers."""

import inspect
from array import array
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask import Flask

from orchestrator.app import create_app
from orchestrator.service import Orchestrator
from rollyard.api import OrchestratorAPI, RunAPI
from rollyard.http import Peer
from rollyard.messages import RunSettings, Share, TrainerServers

OF_SERVICES = {
    "register",
    "leave",
    "heartbeat",
    "report",
    "llm_heartbeat",
    "llm_leave",
    "llm_nodes",
}
OF_OTHER_PROGRAMS = {"livez", "readyz", "openapi", "metrics", "job"}
ARGUMENTS: dict[str, object] = {
    "batch_id": "batch-1",
    "exhausted": True,
    "job_id": "train/p0/0",
    "name": "train/p0",
    "node_id": "node-1",
    "path": "/checkpoint",
    "prompts": [],
    "requested_batch_size": 1,
    "server_id": "agent-0",
    "servers": TrainerServers(name="trainer", servers=("http://127.0.0.1:9",)),
    "share": Share(weight=2),
    "settings": RunSettings(run_id="train"),
    "token_ids": array("i", [1]),
    "version": 1,
}


class _Asked(Exception):
    """What was asked of the peer: a method and a path."""


class Asking(Peer):
    """Says what it is asked, and asks nobody."""

    def get(self, path: str, kind: Any, *, timeout_seconds: float | None = None) -> Any:
        raise _Asked("GET", path)

    def post(
        self, path: str, message: object, kind: Any, *, timeout_seconds: float | None = None
    ) -> Any:
        raise _Asked("POST", path)


@pytest.fixture
def app(orchestrator: Orchestrator) -> Flask:
    return create_app(orchestrator)


@pytest.fixture
def api() -> OrchestratorAPI:
    api = OrchestratorAPI(token="no token is looked for")
    api.peer = Asking(api.peer.url, name="orchestrator")
    return api


def methods_of(api: OrchestratorAPI | RunAPI) -> list[Callable[..., object]]:
    named = inspect.getmembers(api, inspect.ismethod)
    return [method for name, method in named if not name.startswith("_")]


def asked_by(method: Callable[..., object]) -> tuple[str, str]:
    parameters = inspect.signature(method).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty]
    with pytest.raises(_Asked) as asked:
        method(**{name: ARGUMENTS[name] for name in needed})
    verb, path = asked.value.args
    return verb, urlsplit(path).path


def test_every_route_for_trainers_and_operators_has_its_method(
    app: Flask, api: OrchestratorAPI
) -> None:
    methods = [m for m in methods_of(api) if m.__name__ not in ("call", "close")]
    methods += methods_of(RunAPI(api, "train"))
    routes = app.url_map.bind("")
    called = {routes.match(path, method=verb)[0] for verb, path in map(asked_by, methods)}
    declared = {rule.endpoint for rule in app.url_map.iter_rules()} - {"static"}
    assert called == declared - OF_SERVICES - OF_OTHER_PROGRAMS


def test_a_name_with_signs_of_its_own_stays_one_part_of_the_path(
    app: Flask, api: OrchestratorAPI
) -> None:
    verb, path = asked_by(RunAPI(api, "50%/a?b").finish)
    assert app.url_map.bind("").match(path.replace("%2F", "-"), method=verb)[0] == "close_run"
