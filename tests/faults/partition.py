"""Ways to cut agent servers from the orchestrator without ending anything.

A network namespace with a cable of its own where we may make one, and everywhere a proxy in each
direction.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

import msgspec

from chaos.agent import ChaosAgent
from chaos.cluster import Cluster
from chaos.proxy import LossyProxy
from chaos.settings import HOST
from launch.free_ports import free_port
from serving.bind import Bind


class Partition(Protocol):
    orchestrator_options: tuple[str, ...]
    """So that it can be reached from the far side."""

    def beyond(self, cluster: Cluster, index: int) -> ChaosAgent:
        """The agent server, on the far side."""

    def cut(self) -> None: ...
    def heal(self) -> None: ...
    def close(self) -> None: ...


class Proxies:
    """Every agent server on the far side is reached, and reaches out, through a proxy."""

    orchestrator_options: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._proxies: list[LossyProxy] = []

    def beyond(self, cluster: Cluster, index: int) -> ChaosAgent:
        to_agent = self._proxy([cluster.ports.agents[index]])
        to_orchestrator = self._proxy(cluster.ports.orchestrators)
        return msgspec.structs.replace(
            cluster.described(index), url=to_agent, orchestrator=to_orchestrator
        )

    def cut(self) -> None:
        for proxy in self._proxies:
            proxy.cut()

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.heal()

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()

    def _proxy(self, targets: list[int]) -> str:
        port = free_port()
        self._proxies.append(LossyProxy(port, targets, lost_share=0.0, seed=0))
        return f"http://{HOST}:{port}"


class Namespace:
    """A network namespace, as another machine would be: a cable leads there, and is unplugged."""

    orchestrator_options: tuple[str, ...] = ("--host", "0.0.0.0", "--insecure")

    def __init__(self) -> None:
        number = os.getpid()
        self._name = f"partition{number}"
        self._cable = f"near{number}"
        subnet = f"10.{200 + number // 250 % 50}.{number % 250}"
        self._near, self._far = f"{subnet}.1", f"{subnet}.2"
        _ip("netns", "add", self._name)
        try:
            peer = ("peer", "name", "far", "netns", self._name)
            _ip("link", "add", self._cable, "type", "veth", *peer)
            _ip("addr", "add", f"{self._near}/30", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            _ip("-n", self._name, "addr", "add", f"{self._far}/30", "dev", "far")
            self.heal()
        except BaseException:
            self.close()
            raise

    def beyond(self, cluster: Cluster, index: int) -> ChaosAgent:
        bind = Bind(host=self._far, port=cluster.ports.agents[index], threads=32, insecure=True)
        return msgspec.structs.replace(
            cluster.described(index),
            bind=bind,
            url=bind.url,
            orchestrator=f"http://{self._near}:{cluster.ports.orchestrators[0]}",
            namespace=str(Path("/run/netns") / self._name),
        )

    def cut(self) -> None:
        _ip("-n", self._name, "link", "set", "far", "down")

    def heal(self) -> None:
        _ip("-n", self._name, "link", "set", "far", "up")

    def close(self) -> None:
        # First the cable: with its namespace it goes later, and its name is not free until then.
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._cable)
        _ip("netns", "delete", self._name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)


def namespaces_are_permitted() -> bool:
    if shutil.which("ip") is None:
        return False
    with contextlib.suppress(subprocess.CalledProcessError):
        Namespace().close()
        return True
    return False


MEANS: list[type[Partition]] = [Proxies, *([Namespace] if namespaces_are_permitted() else [])]
