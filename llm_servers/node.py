"""The LLM servers of one node, from waiting for them to serving them.

- Ready means: every server was healthy and warmed up once, and the orchestrator knows this node.
- Every server has an integer weight version from then on: one that nobody labelled serves the
  model as started, which is version 0.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from llm_servers.checkpoint import problem_with_updating
from llm_servers.server import LLMServer
from llm_servers.weights import WeightUpdater
from rollyard.backoff import Backoff
from rollyard.errors import (
    DeadlineExceeded,
    InvalidMessage,
    LLMUnavailable,
    OrchestratorUnavailable,
    Unavailable,
)
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    LLMNode,
    Message,
    ScoreRequest,
    Scores,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from rollyard.tokens import NO_TOKENS, Tokens
from serving.gunicorn import Bind

T = TypeVar("T")

log = structlog.get_logger()

_PROBE_SECONDS = 0.2


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One control service and the LLM servers behind it."""

    bind: Bind
    servers: tuple[str, ...]
    model: Path
    orchestrator: str
    node_id: str
    ready_seconds: float = 300.0
    """For all servers to become healthy, and again for the orchestrator to answer."""
    tokens: Tokens = NO_TOKENS
    """Whom it serves; it shows the orchestrator the one for services."""

    def as_message(self) -> LLMNode:
        return LLMNode(
            node_id=self.node_id, url=self.bind.url, servers=self.servers, model=str(self.model)
        )


class ServerState(Message, frozen=True, kw_only=True):
    """What one LLM server says of itself; `version` is None where it does not answer."""

    url: str
    healthy: bool
    paused: bool = False
    version: int | None = None


class NodeState(Message, frozen=True, kw_only=True):
    node_id: str
    waiting_for: str
    """Empty once the node is ready."""
    servers: tuple[ServerState, ...]


class Node:
    """The running node. `start_up` first; then updates, scores and state from any thread."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._servers = tuple(LLMServer(url) for url in settings.servers)
        self._orchestrator = Peer(
            settings.orchestrator,
            name="orchestrator",
            token=settings.tokens.for_services,
            unreachable=OrchestratorUnavailable,
        )
        self._closed = threading.Event()
        self._updater: WeightUpdater | None = None
        self.waiting_for = "the LLM servers to start"

    def start_up(self) -> None:
        """Wait for the servers, warm them up, register. Raises what ended the wait."""
        deadline = time.monotonic() + self._settings.ready_seconds
        for server in self._servers:
            self.waiting_for = f"the LLM server at {server.url} to become healthy"
            self._await_healthy(server, deadline)
        self.waiting_for = "the first answer of every LLM server"
        versions = self._on_all(_take_over)
        self._updater = WeightUpdater(self._servers, version=max(versions))
        self.waiting_for = (
            f"the orchestrator at {self._settings.orchestrator} to register this node"
        )
        self._register()
        self.waiting_for = ""
        log.info("llm_node_ready", servers=self._settings.servers, version=max(versions))

    def update_weights(self, wanted: WeightUpdate) -> WeightReport:
        if self._updater is None:
            raise Unavailable(f"the LLM servers are not ready: waiting for {self.waiting_for}")
        if problem := problem_with_updating(self._settings.model):
            raise InvalidMessage(problem.message, fix=problem.fix)
        return self._updater.update(wanted)

    def weight_version(self) -> WeightVersion:
        if self._updater is None:
            raise Unavailable(f"the LLM servers are not ready: waiting for {self.waiting_for}")
        return WeightVersion(version=self._updater.version)

    def score(self, request: ScoreRequest) -> Scores:
        if not request.token_ids:
            raise InvalidMessage("there are no token_ids to score")
        logprobs = self._on_all(lambda server: server.score(request.token_ids))
        return Scores(logprobs=dict(zip(self._settings.servers, logprobs, strict=True)))

    def state(self) -> NodeState:
        return NodeState(
            node_id=self._settings.node_id,
            waiting_for=self.waiting_for,
            servers=tuple(self._on_all(_state)),
        )

    def close(self) -> None:
        self._closed.set()
        self._orchestrator.close()
        for server in self._servers:
            server.close()

    def _await_healthy(self, server: LLMServer, deadline: float) -> None:
        while not server.healthy():
            if time.monotonic() > deadline or self._closed.wait(_PROBE_SECONDS):
                raise DeadlineExceeded(
                    f"the LLM server at {server.url} was not healthy within "
                    f"{self._settings.ready_seconds:g} s",
                    fix="its log says why",
                )

    def _register(self) -> None:
        """Tell the orchestrator about this node, again and again while it cannot be reached."""
        patience = Backoff(longest_seconds=2.0, total_seconds=self._settings.ready_seconds)
        delays = patience.delays()
        while True:
            try:
                self._orchestrator.post("/llm-nodes", self._settings.as_message(), Accepted)
                return
            except Unavailable:
                delay = next(delays, None)
                if delay is None or self._closed.wait(delay):
                    raise

    def _on_all(self, ask: Callable[[LLMServer], T]) -> list[T]:
        with ThreadPoolExecutor(len(self._servers)) as threads:
            return list(threads.map(ask, self._servers))


def _take_over(server: LLMServer) -> int:
    """Make `server` answer once; its weight version, which is 0 if nobody gave it one."""
    if server.paused():
        # A weight update ended half-way before us. Only the next one may resume it.
        log.warning("llm_server_paused", server=server.url)
    else:
        server.warm_up()
    version = server.version()
    if version is None:
        version = 0
        server.set_version(version)
    return version


def _state(server: LLMServer) -> ServerState:
    if not server.healthy():
        return ServerState(url=server.url, healthy=False)
    try:
        return ServerState(
            url=server.url, healthy=True, paused=server.paused(), version=server.version()
        )
    except LLMUnavailable:
        return ServerState(url=server.url, healthy=False)
