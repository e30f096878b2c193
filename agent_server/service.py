"""The assembly of one agent server from its parts, and its end, which leaves no process behind."""

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import EntryPoint

import msgspec
import structlog
from flask import Flask

from agent_server.abilities import ServerAbilities
from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import MakeAgent
from agent_server.app import create_app
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.environments.hosted.hosts import EnvironmentHosts
from agent_server.followed import LLMFollower
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.runner import JobRunner
from agent_server.jobs.shared_slots import SharedSlots
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.metrics import Metrics
from agent_server.nemo_gym.app import create_nemo_gym_app
from agent_server.nemo_gym.door import NemoGymDoor, make_nemo_gym_door
from agent_server.outbox import Outbox
from agent_server.presence import Presence
from agent_server.prorl.app import create_door_app
from agent_server.prorl.door import ProrlDoor, make_door
from agent_server.registry import (
    environments_apart,
    foreign_environments,
    graders,
    load_agents,
    load_tool_call_formats,
    our_environments,
)
from agent_server.repositories import Repositories
from agent_server.rewards.fallback import FallbackRewards
from agent_server.rewards.local import LocalRewards
from agent_server.rewards.remote import RemoteRewards
from agent_server.sandbox.providers import open_provider
from agent_server.sandbox.warm_pool import WarmPool
from agent_server.settings import AgentServerSettings
from agent_server.status import Status
from rollyard.errors import RollyardError
from rollyard.http import orchestrator_at
from rollyard.messages import AgentServer, LLMServersToAsk
from serving.gunicorn import ENDED_FOR_GOOD, Service
from serving.model_digest import model_digest

log = structlog.get_logger()

_FLUSH_SECONDS = 1.0
_STOP_SECONDS = 2.0
_DOOR_SECONDS = 0.5
"""Together with the farewell less than the 5 s that gunicorn gives a worker to end."""


class Loaded(msgspec.Struct, frozen=True):
    """The parts that are read and checked before anything is served."""

    template: ChatTemplate
    environments: tuple[EntryPoint, ...]
    """Environments of other packages."""
    agents: Mapping[str, MakeAgent]
    graders: tuple[EntryPoint, ...]
    digest: str = ""  # of the model


def load(settings: AgentServerSettings) -> Loaded:
    """Find out what cannot work here while it can still be said in one sentence."""
    loaded = Loaded(
        ChatTemplate.load(
            settings.model, settings.stop_tokens, settings.tool_calls, load_tool_call_formats()
        ),
        foreign_environments(),
        load_agents(),
        graders(),
        model_digest(settings.model),
    )
    open_provider(settings.sandbox).close()
    with closing(EnvironmentHost(loaded.environments, settings.environments)) as host:
        _abilities(settings, loaded).check(host.environments())
    return loaded


def start(settings: AgentServerSettings, loaded: Loaded) -> Service:
    """Start the whole service in this process."""
    server = AgentService(settings, loaded)
    server.presence.start(on_failure=server.fail)
    app = create_app(
        settings.server_id,
        server.runner,
        server.metrics,
        server.why_not_ready,
        settings.tokens,
        complete=server.complete,
        ask_these=server.ask_these,
    )
    doors = _door_apps(settings.server_id, server)
    return Service(app, server.close, drain=server.drain, doors=doors)


class AgentService:
    """Owns the parts of one agent server, and the order in which they end."""

    def __init__(self, settings: AgentServerSettings, loaded: Loaded) -> None:
        self._orchestrator = orchestrator_at(settings.orchestrator, settings.tokens.for_services)
        llm = LLMSettings(
            servers=settings.llm_servers,
            shares=settings.proxies,
            tokens=settings.llm_tokens,
            followed_token=settings.tokens.for_services,
        )
        self._llm = LLMClient(llm)
        self._token = settings.tokens.for_services
        self._follower = LLMFollower(self._orchestrator, loaded.digest, self._llm.follow)
        if settings.follows_llm_nodes:
            self._follower.start()
        self._sandboxes = open_provider(settings.sandbox)
        self._warm_pool = WarmPool(self._sandboxes, settings.warm_sandboxes)
        sources, limits = settings.sandbox.sources, settings.environments
        self._hosts = EnvironmentHosts(loaded.environments, environments_apart(), sources, limits)
        self._rewards = _rewards_of(settings, loaded.graders)
        self._gateway = Gateway()
        self._outbox = Outbox(self._orchestrator, lambda job: self.runner.accept_next(job))
        self.metrics = self._make_metrics()
        stages = self._make_stages(loaded, _abilities(settings, loaded))
        slots = SharedSlots(settings.runner, lambda: self.presence.beat_soon())
        rooms, report = slots.rooms(), self._outbox.put
        self.runner = JobRunner(settings.runner, stages, self.metrics, report, rooms=rooms)
        self.door = make_door(settings.door, stages, self._llm, slots)
        self.nemo_gym = make_nemo_gym_door(settings.nemo_gym, stages, self._llm, slots)
        self.presence = Presence(
            self._orchestrator,
            _introduce(settings, stages.environments, loaded.digest),
            self.runner,
            self._outbox.leases,
            self._llm,
            settings.presence,
        )
        if self.nemo_gym is not None:
            self.nemo_gym.start()

    def complete(self, status: Status) -> Status:
        """The status, with what policies could do to this machine and with the LLM servers."""
        return msgspec.structs.replace(
            status, unsafe=self._sandboxes.unsafe, llm_servers=self._llm.endpoints()
        )

    def ask_these(self, servers: LLMServersToAsk) -> None:
        """Ask these LLM servers, and no others, from now on."""
        self._llm.ask_these(servers, self._token)
        log.info("llm_servers_changed", proxies=sorted(servers.proxies), gone=servers.gone)

    def why_not_ready(self) -> str:
        """The reason why no Job can run here; empty if Jobs can."""
        return self.presence.waiting_for or self._llm.why_not_ready() or self.runner.why_not_ready()

    def drain(self) -> None:
        """Take no more Jobs."""
        self.runner.drain()
        self._outbox.drain()
        for door in self._doors:
            door.drain()

    def close(self) -> None:
        """Deliver what is finished, stop what runs, say goodbye, and leave no process behind."""
        self.drain()
        self._outbox.flush(_FLUSH_SECONDS)
        self.presence.close()
        self._outbox.close()
        self.runner.close(_STOP_SECONDS)
        for door in self._doors:
            door.close(_DOOR_SECONDS)
        self._follower.close()
        self.presence.leave()
        self._end_processes()
        self._llm.close()
        self._orchestrator.close()

    @property
    def _doors(self) -> Iterator[ProrlDoor | NemoGymDoor]:
        return (door for door in (self.door, self.nemo_gym) if door is not None)

    def fail(self, error: RollyardError) -> None:
        """End the process for good, because it cannot be registered."""
        self._end_processes()
        give_up(error)

    def _end_processes(self) -> None:
        self._hosts.close()
        self._rewards.close()
        self._gateway.close()
        self._warm_pool.close()
        self._sandboxes.close()

    def _make_metrics(self) -> Metrics:
        metrics = Metrics()
        metrics.watch(
            "rollyard_agent_sandboxes_left",
            "Sandboxes of ended jobs of which something could not be removed so far",
            lambda: self._sandboxes.ledger.left,
        )
        metrics.watch(
            "rollyard_agent_sandboxes_ready",
            "Sandboxes made ahead that wait for a job",
            lambda: self._warm_pool.ready,
        )
        metrics.watch(
            "rollyard_agent_environments_left",
            "Processes of environments that were killed and have not ended",
            lambda: self._hosts.stuck,
        )
        return metrics

    def _make_stages(self, loaded: Loaded, abilities: ServerAbilities) -> Stages:
        # Ours come with Rollyard, whether this server was meant for them or not.
        here = our_environments(self._rewards, abilities.repositories)
        ours = abilities.usable(here | self._hosts.apart(self._rewards))
        return Stages(
            environments=ours | self._hosts.foreign(self._rewards),
            agents=loaded.agents,
            sandboxes=self._warm_pool,
            policy=self._llm,
            template=loaded.template,
            gateway=self._gateway,
            rewards_compute_here=isinstance(self._rewards, LocalRewards),
        )


def _door_apps(server_id: str, server: AgentService) -> tuple[Flask, ...]:
    if server.door is not None:
        return (create_door_app(server_id, server.door),)
    if server.nemo_gym is not None:
        return (create_nemo_gym_app(server_id, server.nemo_gym),)
    return ()


def give_up(error: RollyardError) -> None:
    """End the process, and gunicorn with it: it cannot do its work."""
    print(f"rollyard: {error}", file=sys.stderr, flush=True)
    os._exit(ENDED_FOR_GOOD)


def _abilities(settings: AgentServerSettings, loaded: Loaded) -> ServerAbilities:
    return ServerAbilities(
        agents=loaded.agents.keys(),
        tags=settings.tags,
        sandboxes=settings.sandbox,
        repositories=Repositories(settings.repositories),
    )


def _rewards_of(
    settings: AgentServerSettings, graders: Iterable[EntryPoint]
) -> LocalRewards | FallbackRewards:
    local = LocalRewards(graders, settings.local_rewards)
    if settings.reward_service is None:
        return local
    return FallbackRewards(RemoteRewards(settings.reward_service), local)


def _introduce(
    settings: AgentServerSettings, environments: Iterable[str], digest: str
) -> AgentServer:
    return AgentServer(
        server_id=settings.server_id,
        url=settings.bind.url,
        slots=settings.runner.slots,
        ahead=settings.runner.ahead,
        environments=tuple(sorted(environments)),
        tags=settings.tags,
        digest=digest,
        door="" if settings.door is None else settings.door.bind.url,
        incarnation=secrets.token_hex(8),
        secret=settings.secret,
    )
