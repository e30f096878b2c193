"""The processes of a chaos run: Redis, orchestrators, agent servers, an LLM node, a trainer.

- Each leads a process group, so that a kill -9 takes all of it, as the loss of its node would.
- Whatever is still here at the end is killed.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import redis
import requests

from chaos import agent
from chaos.agent import ChaosAgent
from chaos.settings import HOST, ChaosSettings
from rollyard.errors import LaunchError
from serving.gunicorn import Bind

READY_SECONDS = 60.0
LLM_NODE = "llm-node"
PROBE_SECONDS = 0.02
"""Between two looks at a process that is starting: nothing there could wake us."""


class ClusterPorts:
    """Free ones, found once, so that a process comes back where it was."""

    def __init__(self, orchestrators: int, agent_servers: int) -> None:
        with contextlib.ExitStack() as held:
            sockets = [
                held.enter_context(socket.create_server((HOST, 0)))
                for _ in range(3 + orchestrators + agent_servers)
            ]
            numbers = [each.getsockname()[1] for each in sockets]
        self.redis, self.proxy, self.llm_node = numbers[:3]
        self.orchestrators = numbers[3 : 3 + orchestrators]
        self.agents = numbers[3 + orchestrators :]


class Cluster:
    def __init__(self, settings: ChaosSettings, ports: ClusterPorts) -> None:
        self._settings = settings
        self.ports = ports
        self.redis_url = f"redis://{HOST}:{ports.redis}"
        self.orchestrator_urls = [f"http://{HOST}:{port}" for port in ports.orchestrators]
        self.door_url = f"http://{HOST}:{ports.proxy}"
        """What agent servers and the trainer take for the orchestrator."""
        self.orchestrator_clock: Path | None = None
        """How wrong the clocks of orchestrators are, see `chaos.skew`."""
        self._services: dict[str, subprocess.Popen[bytes]] = {}
        self._agents: dict[int, ForkServerProcess] = {}
        # Agent servers start often: they are forked from a process that has imported everything.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["chaos.agent"])
        (settings.directory / "logs").mkdir(parents=True, exist_ok=True)

    def start_redis(self) -> float:
        """Returns the seconds until it answered."""
        data = str(self._settings.directory / "redis")
        command = ["orchestrator.queues.server", "--port", str(self.ports.redis)]
        self._start("redis", *command, "--data-dir", data)
        return self._wait("redis", redis.Redis.from_url(self.redis_url).ping)

    def start_orchestrator(self, index: int, *options: str) -> float:
        """Returns the seconds until it answered."""
        name = f"orchestrator-{index}"
        clock = self.orchestrator_clock
        self._start(
            name,
            *(() if clock is None else ("chaos.skew", str(clock))),
            *("orchestrator", "--port", str(self.ports.orchestrators[index])),
            *("--redis-url", self.redis_url),
            *("--lease-seconds", str(self._settings.lease_seconds)),
            *options,
        )
        url = self.orchestrator_urls[index] + "/livez"
        return self._wait(name, lambda: requests.get(url, timeout=5).ok)

    def start_llm_node(self) -> None:
        """Returns once the orchestrator knows it; started again, nothing happens."""
        if LLM_NODE in self._services:
            return
        port = self.ports.llm_node
        self._start(
            LLM_NODE,
            *("chaos.llm_node", "--port", str(port), "--orchestrator", self.door_url),
            *("--directory", str(self._settings.directory)),
        )
        self._wait(LLM_NODE, lambda: requests.get(f"http://{HOST}:{port}/readyz", timeout=5).ok)

    def start_trainer(self, rows: int) -> None:
        """It raises the weight version with every Batch, so that there must be an LLM node."""
        self._start(
            "trainer",
            *("chaos.trainer", "--url", self.door_url),
            *("--directory", str(self._settings.directory), "--rows", str(rows)),
            *("--seed", str(self._settings.seed)),
            *("--crash-share", str(self._settings.trainer_crash_share)),
        )

    def described(self, index: int) -> ChaosAgent:
        """The agent server as it is, unless somebody wants it otherwise."""
        bind = Bind(host=HOST, port=self.ports.agents[index], threads=32)
        return ChaosAgent(
            server_id=f"agent-{index}",
            bind=bind,
            url=bind.url,
            orchestrator=self.door_url,
            slots=self._settings.slots,
            heartbeat_seconds=self._settings.heartbeat_seconds,
            directory=self._settings.directory,
            log=self._settings.directory / "logs" / f"agent-{index}.log",
        )

    def start_agent(self, index: int, described: ChaosAgent | None = None) -> None:
        chaos_agent = described or self.described(index)
        process = self._context.Process(target=agent.main, args=(chaos_agent,))
        process.start()
        self._agents[index] = process

    def agent_is_dead(self, index: int) -> bool:
        return not self._agents[index].is_alive()

    def trainer_exit(self) -> int | None:
        return self._services["trainer"].poll()

    def pid(self, service: str) -> int:
        return self._services[service].pid

    def pids(self) -> dict[str, int]:
        """Of the orchestrators and the agent servers, by name."""
        found = {
            name: service.pid
            for name, service in list(self._services.items())
            if name.startswith("orchestrator")
        }
        for index, agent_server in list(self._agents.items()):
            if agent_server.pid is not None:
                found[f"agent-{index}"] = agent_server.pid
        return found

    def signal_service(self, service: str, number: signal.Signals) -> None:
        os.killpg(self._services[service].pid, number)

    def signal_agent(self, index: int, number: signal.Signals) -> None:
        pid = self._agents[index].pid
        assert pid is not None
        with contextlib.suppress(ProcessLookupError):  # so young that it leads no group yet
            os.killpg(pid, number)

    def kill_service(self, service: str) -> None:
        self.signal_service(service, signal.SIGKILL)
        self._services[service].wait(10)

    def kill_agent(self, index: int) -> None:
        self.signal_agent(index, signal.SIGKILL)
        self._agents[index].kill()
        self._agents[index].join(10)

    def close(self) -> None:
        for index in self._agents:
            self.kill_agent(index)
        for service, process in self._services.items():
            if process.poll() is None:
                self.kill_service(service)

    def _start(self, name: str, *module: str) -> None:
        with (self._settings.directory / "logs" / f"{name}.log").open("ab") as log:
            self._services[name] = subprocess.Popen(
                [sys.executable, "-m", *module],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, name: str, answers: Callable[[], object]) -> float:
        began = time.monotonic()
        while time.monotonic() < began + READY_SECONDS:
            with contextlib.suppress(redis.RedisError, requests.RequestException):
                if answers():
                    return time.monotonic() - began
            if self._services[name].poll() is not None:
                break
            time.sleep(PROBE_SECONDS)
        raise LaunchError(
            f"{name} does not answer",
            fix=f"{self._settings.directory / 'logs' / name}.log says why not",
        )
