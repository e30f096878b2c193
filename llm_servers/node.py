"""The control of one node's LLM servers, from waiting for them to updating them.

- Ready means: every server was healthy and warmed up once, the orchestrator knows this node, and
  the servers have the published weights, or cannot have them before the trainer publishes again.
- A server that restarts gets the published weights with the heartbeat that finds it without them.
  If nothing was published, it serves the model as started, as version 0.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from llm_servers.adapter_files import is_adapter
from llm_servers.checkpoint import check_updatable
from llm_servers.keeper import Keeper
from llm_servers.presence import NodePresence
from llm_servers.server import LLMServer
from llm_servers.standing import NodeState, common_version, state_of, why_silent
from llm_servers.weights import WeightUpdater
from rollyard.errors import DeadlineExceeded, InvalidMessage, Unavailable
from rollyard.http import orchestrator_at
from rollyard.messages import (
    LLMNode,
    LLMServerState,
    ScoreRequest,
    Scores,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from rollyard.tokens import NO_TOKENS, Tokens
from serving.bind import Bind
from serving.log_format import LogFormat
from serving.model_digest import model_digest

T = TypeVar("T")

log = structlog.get_logger()

_PROBE_SECONDS = 0.2


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one control service."""

    bind: Bind
    servers: tuple[str, ...]
    proxy: str = ""
    """URL of the proxy before them, which it announces; empty if there is none."""
    model: Path
    orchestrator: str
    node_id: str
    ready_seconds: float = 300.0
    """Time for all servers to become healthy, and again for the orchestrator to answer."""
    tokens: Tokens = NO_TOKENS
    """Tokens of its callers; it presents the services' token to the orchestrator."""
    log_format: LogFormat = LogFormat.TEXT

    def as_message(self) -> LLMNode:
        """The node's registration before anything is known of its servers."""
        return LLMNode(
            node_id=self.node_id,
            url=self.bind.url,
            servers=self.servers,
            model=str(self.model),
            proxy=self.proxy,
        )


class Node:
    """The running node. Call `start_up` first; the other methods are safe from any thread."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._servers = tuple(LLMServer(url) for url in settings.servers)
        self._orchestrator = orchestrator_at(settings.orchestrator, settings.tokens.for_services)
        self._presence = NodePresence(
            self._orchestrator, self._describe, lambda published: self._keeper.obey(published)
        )
        self._updater = WeightUpdater(
            self._servers, leaves_behind=bool(settings.proxy), model=settings.model
        )
        self._keeper = Keeper(self._updater, self._presence.hurry)
        self._digest = model_digest(settings.model)
        self._closed = threading.Event()
        self._starting = "the LLM servers to start"

    @property
    def waiting_for(self) -> str:
        """What the node waits for; empty once weights can be updated and tokens scored."""
        return self._starting or self._keeper.waiting_for

    @property
    def trouble(self) -> str:
        """Reason why LLM servers cannot serve the published weights; empty if all can."""
        behind = (f"{url}: {reason}" for url, reason in self._updater.behind.items())
        return self._keeper.trouble or "; ".join(behind)

    def start_up(self) -> None:
        """Wait for the servers, warm them up, and register. Raises `DeadlineExceeded` if a server
        is late, and `Unavailable` if the orchestrator is."""
        deadline = time.monotonic() + self._settings.ready_seconds
        for server in self._servers:
            self._starting = f"the LLM server at {server.url} to become healthy"
            self._await_healthy(server, deadline)
        self._starting = "the first answer of every LLM server"
        self._updater.take_over(self._on_all(_warm_up))
        self._starting = f"the orchestrator at {self._settings.orchestrator} to register this node"
        self._presence.arrive(self._settings.ready_seconds)
        self._presence.start()
        self._starting = ""

    def update_weights(self, wanted: WeightUpdate) -> WeightReport:
        self._check_started()
        # An adapter leaves the head as it is; one for the head fits no model that ties it.
        if wanted.path and not is_adapter(Path(wanted.path)):
            check_updatable(self._settings.model)
        return self._updater.update(wanted)

    def weight_version(self) -> WeightVersion:
        self._check_started()
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
            trouble=self.trouble,
            servers=self._states(),
        )

    def close(self) -> None:
        self._closed.set()
        self._presence.close()
        self._orchestrator.close()
        for server in self._servers:
            server.close()

    def _check_started(self) -> None:
        if self._starting:
            raise Unavailable(f"the LLM servers are not ready: waiting for {self._starting}")

    def _describe(self) -> LLMNode:
        version = self._updater.version
        published = self._updater.published  # before the servers: an update may end meanwhile
        states = self._states()
        serves = common_version(states, version, leaves_behind=bool(self._settings.proxy))
        return msgspec.structs.replace(
            self._settings.as_message(),
            digest=self._digest,
            serves=serves,
            published=published,
            trouble=self.trouble or why_silent(states),
            states=states,
        )

    def _states(self) -> tuple[LLMServerState, ...]:
        behind = self._updater.behind
        return tuple(
            msgspec.structs.replace(state, trouble=behind.get(state.url, ""))
            for state in self._on_all(state_of)
        )

    def _await_healthy(self, server: LLMServer, deadline: float) -> None:
        while not server.healthy():
            if time.monotonic() > deadline or self._closed.wait(_PROBE_SECONDS):
                raise DeadlineExceeded(
                    f"the LLM server at {server.url} was not healthy within "
                    f"{self._settings.ready_seconds:g} s",
                    fix="its log says why",
                )

    def _on_all(self, ask: Callable[[LLMServer], T]) -> list[T]:
        with ThreadPoolExecutor(len(self._servers)) as threads:
            return list(threads.map(ask, self._servers))


def _warm_up(server: LLMServer) -> int | None:
    """Let `server` answer once. Returns its weight version, or None if it has none."""
    if server.paused():
        # An update was interrupted before this process began. Only the next one may resume it.
        log.warning("llm_server_paused", server=server.url)
    else:
        server.warm_up()
    return server.version()
