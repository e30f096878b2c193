"""Processes to kill one by one: Redis, orchestrators, agent servers, an LLM node, a trainer.

- Each leads a process group, so that a kill -9 takes all of it, as the loss of its node would.
- A process comes back where it was: same port, same directory.
- Whatever still runs at the end is killed.
"""

import contextlib
import multiprocessing
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import redis

from chaos import agent, work
from chaos.agent import ChaosAgent
from chaos.settings import HOST, ClusterSettings
from launch.free_ports import free_range
from launch.processes import Started, module_command, signal_group, start_process
from launch.readiness import answers, wait_until_ready
from serving.bind import Bind

READY_SECONDS = 60.0
LLM_NODE = "llm-node"


class ClusterPorts:
    """Free ports, chosen once, so that a process that is started again has the same."""

    def __init__(self, orchestrators: int, agent_servers: int) -> None:
        self.redis, self.proxy, self.llm_node, *others = free_range(
            3 + orchestrators + agent_servers
        )
        self.orchestrators = others[:orchestrators]
        self.agents = others[orchestrators:]


class Cluster:
    """The processes of one test or benchmark. Use it as a context manager, or close it."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self.ports = ClusterPorts(settings.orchestrators, settings.agent_servers)
        self.redis_url = f"redis://{HOST}:{self.ports.redis}"
        self.orchestrator_urls = [f"http://{HOST}:{port}" for port in self.ports.orchestrators]
        self.door_url = f"http://{HOST}:{self.ports.proxy}"
        """URL that agent servers and the trainer have for the orchestrator's."""
        self.orchestrator_clock: Path | None = None
        """File with the error of the orchestrators' clocks, see `chaos.skew`; None if they are
        right."""
        self._services: dict[str, Started] = {}
        self._agents: dict[int, ForkServerProcess] = {}
        # Agent servers start often: they are forked from a process that has imported everything.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["chaos.agent"])
        self._logs = settings.directory / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str, module: str, *options: str) -> Started:
        """Start a service of this name; its output is added to its log."""
        log = self._logs / f"{name}.log"
        self._services[name] = start_process(name, module_command(module, *options), log)
        return self._services[name]

    def start_redis(self) -> float:
        """Start Redis, and return the seconds until it answered."""
        started = self.start(
            "redis",
            *("orchestrator.queues.server", "--port", str(self.ports.redis)),
            *("--data-dir", str(self._settings.directory / "redis")),
        )
        client = redis.Redis.from_url(self.redis_url)

        def answers_a_ping() -> bool:
            with contextlib.suppress(redis.RedisError):
                return bool(client.ping())
            return False

        return wait_until_ready(started, answers_a_ping, READY_SECONDS)

    def start_orchestrator(self, index: int, *options: str) -> float:
        """Start an orchestrator, and return the seconds until it answered."""
        clock = self.orchestrator_clock
        started = self.start(
            f"orchestrator-{index}",
            *(() if clock is None else ("chaos.skew", str(clock))),
            *("orchestrator", "--port", str(self.ports.orchestrators[index])),
            *("--redis-url", self.redis_url),
            *("--lease-seconds", str(self._settings.lease_seconds)),
            *options,
        )
        url = self.orchestrator_urls[index] + "/livez"
        return wait_until_ready(started, lambda: answers(url), READY_SECONDS)

    def start_llm_node(self) -> None:
        """Start the LLM node unless it runs. Returns once the orchestrator knows it."""
        if LLM_NODE in self._services:
            return
        port = self.ports.llm_node
        started = self.start(
            LLM_NODE,
            *("chaos.llm_node", "--port", str(port), "--orchestrator", self.door_url),
            *("--directory", str(self._settings.directory)),
        )
        url = f"http://{HOST}:{port}/readyz"
        wait_until_ready(started, lambda: answers(url), READY_SECONDS)

    def start_trainer(self, rows: int, seed: int, crash_share: float) -> None:
        """Start the trainer, which needs an LLM node: it raises the weight version with every
        Batch."""
        self.start(
            "trainer",
            *("chaos.trainer", "--url", self.door_url),
            *("--directory", str(self._settings.directory), "--rows", str(rows)),
            *("--seed", str(seed), "--crash-share", str(crash_share)),
        )

    def described(self, index: int) -> ChaosAgent:
        """The agent server that `start_agent` starts unless it is given another."""
        bind = Bind(host=HOST, port=self.ports.agents[index], threads=32)
        return ChaosAgent(
            server_id=f"agent-{index}",
            bind=bind,
            url=bind.url,
            orchestrator=self.door_url,
            slots=self._settings.slots,
            tags=work.tags_of_server(index),
            heartbeat_seconds=self._settings.heartbeat_seconds,
            directory=self._settings.directory,
            log=self._logs / f"agent-{index}.log",
        )

    def start_agent(self, index: int, described: ChaosAgent | None = None) -> None:
        chaos_agent = described or self.described(index)
        process = self._context.Process(target=agent.main, args=(chaos_agent,))
        process.start()
        self._agents[index] = process

    def agent_is_dead(self, index: int) -> bool:
        return not self._agents[index].is_alive()

    def trainer_exit(self) -> int | None:
        return self._services["trainer"].process.poll()

    def service(self, name: str) -> Started:
        return self._services[name]

    def pids(self) -> dict[str, int]:
        """Name -> process id of the orchestrators and the agent servers."""
        found = {
            name: service.process.pid
            for name, service in list(self._services.items())
            if name.startswith("orchestrator")
        }
        for index, agent_server in list(self._agents.items()):
            if agent_server.pid is not None:
                found[f"agent-{index}"] = agent_server.pid
        return found

    def signal_agent(self, index: int, number: signal.Signals) -> None:
        process = self._agents[index]
        assert process.pid is not None
        # One that is very young leads no group yet: `signal_group` finds none.
        signal_group(process.pid, number, ended=process.exitcode is not None)

    def kill_agent(self, index: int) -> None:
        self.signal_agent(index, signal.SIGKILL)
        self._agents[index].kill()
        self._agents[index].join(10)

    def close(self) -> None:
        for index in self._agents:
            self.kill_agent(index)
        for service in self._services.values():
            service.kill()
