"""Puts one agent server together, and takes it apart without leaving a process behind."""

import itertools
import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
from gunicorn.arbiter import Arbiter

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import MakeAgent
from agent_server.app import create_app
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.metrics import Metrics
from agent_server.outbox import Outbox
from agent_server.presence import Presence, PresenceSettings
from agent_server.registry import (
    check_needs,
    foreign_environments,
    load_agents,
    our_environments,
)
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.command import SandboxLimits
from rollyard.errors import InvalidMessage, OrchestratorUnavailable, RollyardError
from rollyard.http import Peer
from rollyard.messages import AgentServer, Lease, LostSlots, check_name, check_url
from rollyard.tokens import NO_TOKENS, Tokens
from serving.gunicorn import Bind, Service
from serving.log_format import LogFormat
from serving.model_digest import model_digest

_FLUSH_SECONDS = 1.0
_STOP_SECONDS = 2.0
"""Together with the farewell less than the 5 s that gunicorn gives a worker to go."""


class AgentServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One agent server."""

    server_id: str
    bind: Bind
    orchestrator: str
    llm_servers: tuple[str, ...]
    model: Path
    """Directory of the served model: its tokenizer and chat template are used."""
    stop_tokens: tuple[str, ...] = ()
    """Texts of tokens that end a response, beside those that the model's own files name."""
    tags: tuple[str, ...] = ()
    """What environments may need of the machine, by their own words for it."""
    runner: RunnerSettings = RunnerSettings()
    presence: PresenceSettings = PresenceSettings()
    sandbox: SandboxLimits = SandboxLimits()
    environments: ProcessLimits = ProcessLimits()
    secret: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    """What proves that its id is its own, to be kept by whoever starts it again."""
    tokens: Tokens = NO_TOKENS
    """Whom it serves; it shows the orchestrator the one for services."""
    log_format: LogFormat = LogFormat.TEXT

    def __post_init__(self) -> None:
        check_name(self.server_id, "server_id")
        for url in (self.orchestrator, *self.llm_servers):
            check_url(url)
        if not self.llm_servers:
            raise InvalidMessage("no LLM server is given", fix="give at least one --llm-server")


class Loaded(msgspec.Struct, frozen=True):
    """What is checked and read before anything is served."""

    template: ChatTemplate
    environments: tuple[EntryPoint, ...]
    """Of other packages."""
    agents: Mapping[str, MakeAgent]
    digest: str = ""
    """Of the model."""


def load(settings: AgentServerSettings) -> Loaded:
    """Find out what cannot work here while it can still be said in one sentence."""
    loaded = Loaded(
        ChatTemplate.load(settings.model, settings.stop_tokens),
        foreign_environments(),
        load_agents(),
        model_digest(settings.model),
    )
    Bubblewrap(settings.sandbox).close()
    with closing(EnvironmentHost(loaded.environments, settings.environments)) as host:
        environments = our_environments() | host.environments()
    check_needs(environments, loaded.agents, settings.tags)
    return loaded


def start(settings: AgentServerSettings, loaded: Loaded) -> Service:
    """Start the whole service in this process."""
    orchestrator = Peer(
        settings.orchestrator,
        name="orchestrator",
        token=settings.tokens.for_services,
        unreachable=OrchestratorUnavailable,
    )
    llm = LLMClient(LLMSettings(servers=settings.llm_servers))
    sandboxes = Bubblewrap(settings.sandbox)
    host = EnvironmentHost(loaded.environments, settings.environments)
    environments = our_environments() | host.environments()
    outbox = Outbox(orchestrator, take=lambda assignment: runner.accept(assignment))
    metrics = Metrics()
    metrics.watch(
        "rollyard_agent_workspaces_left",
        "Workspaces of ended jobs that could not be removed so far",
        lambda: sandboxes.workspaces.left,
    )
    metrics.watch(
        "rollyard_agent_environments_left",
        "Processes of environments that were killed and have not ended",
        lambda: host.stuck,
    )
    stages = Stages(
        environments=environments,
        agents=loaded.agents,
        sandboxes=sandboxes,
        policy=llm,
        template=loaded.template,
    )
    runner = JobRunner(settings.runner, stages, metrics, outbox.put)
    presence = Presence(
        orchestrator,
        _introduce(settings, environments, loaded.digest),
        Leased(runner, outbox),
        llm.why_not_ready,
        settings.presence,
    )

    def fail(error: RollyardError) -> None:
        host.close()
        sandboxes.close()
        give_up(error)

    presence.start(on_failure=fail)

    def why_not_ready() -> str:
        return presence.why_not_registered() or llm.why_not_ready() or runner.why_not_ready()

    def drain() -> None:
        runner.drain()
        outbox.drain()

    def close() -> None:
        drain()
        outbox.flush(_FLUSH_SECONDS)
        presence.close()
        outbox.close()
        runner.close(_STOP_SECONDS)
        presence.leave()
        host.close()
        sandboxes.close()
        llm.close()
        orchestrator.close()

    app = create_app(settings.server_id, runner, metrics, why_not_ready, settings.tokens)
    return Service(app, close, drain=drain)


class Leased:
    """Every Lease this server answers for: running, or with a Result on its way."""

    def __init__(self, runner: JobRunner, outbox: Outbox) -> None:
        self._runner = runner
        self._outbox = outbox

    def leases(self) -> tuple[Lease, ...]:
        # the runner first: a Lease moves from there to the outbox, and must not be missed
        both = itertools.chain(self._runner.leases(), self._outbox.leases())
        return tuple({(lease.job_id, lease.attempt): lease for lease in both}.values())

    def lost(self) -> LostSlots:
        return self._runner.lost()

    def cancel(self, lease: Lease) -> None:
        self._runner.cancel(lease)

    def park(self, lease: Lease, as_of: float) -> None:
        self._runner.park(lease, as_of)

    def resume(self, lease: Lease, as_of: float) -> None:
        self._runner.resume(lease, as_of)


def give_up(error: RollyardError) -> None:
    """End the process, and with it gunicorn, because it cannot become what it is for."""
    print(f"rollyard: {error}", file=sys.stderr, flush=True)
    os._exit(Arbiter.WORKER_BOOT_ERROR)


def _introduce(
    settings: AgentServerSettings, environments: Iterable[str], digest: str
) -> AgentServer:
    return AgentServer(
        server_id=settings.server_id,
        url=settings.bind.url,
        slots=settings.runner.slots,
        ahead=settings.runner.ahead,
        environments=tuple(sorted(environments)),
        digest=digest,
        incarnation=secrets.token_hex(8),
        secret=settings.secret,
    )
