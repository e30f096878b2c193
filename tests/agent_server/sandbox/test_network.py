"""Sandboxes that may reach a listed host, and nothing else."""

import socket
import threading
from collections.abc import Iterator

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import CommandResult, Sandbox, SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import InvalidMessage

HOST = "127.0.0.1"
"""The machine's own loopback, which the sandbox's is not."""

ASK = """
import os, socket
proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
with socket.create_connection((proxy[0], int(proxy[1])), 10) as client:
    client.sendall(b"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n")
    with client.makefile("rb") as answer:
        print(answer.readline().decode().split()[1])
        answer.readline()
        print(answer.read().decode())
"""


@pytest.fixture(scope="module")
def maker() -> Iterator[Bubblewrap]:
    made = Bubblewrap(SandboxSettings(hosts=(HOST,)))
    yield made
    made.close()


@pytest.fixture
def sandbox(maker: Bubblewrap) -> Iterator[Sandbox]:
    with maker.open(SandboxNeeds(network=(HOST,))) as opened:
        yield opened


@pytest.fixture
def greeter() -> Iterator[int]:
    """The port of a server on this machine that says hello."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"hello")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]


def ask(sandbox: Sandbox, host: str, port: int) -> CommandResult:
    code = ASK.replace("{host}", host).replace("{port}", str(port))
    return sandbox.run(["/usr/bin/python3", "-c", code], deadline_seconds=20)


def test_a_listed_host_is_reached_through_the_proxy(sandbox: Sandbox, greeter: int) -> None:
    assert ask(sandbox, HOST, greeter).output == "200\nhello\n"


def test_another_is_not(sandbox: Sandbox, greeter: int) -> None:
    assert ask(sandbox, "127.0.0.2", greeter).output.startswith("403\n")


def test_there_is_still_no_other_way_out(sandbox: Sandbox, greeter: int) -> None:
    direct = f"exec 3<>/dev/tcp/{HOST}/{greeter} && cat <&3"
    assert sandbox.run(["/bin/bash", "-c", direct], deadline_seconds=10).exit_code != 0
    lines = sandbox.run(["/bin/cat", "/proc/net/dev"], deadline_seconds=10).output.splitlines()
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["lo"]


def test_a_sandbox_that_lists_no_host_has_no_proxy(maker: Bubblewrap) -> None:
    with maker.open(SandboxNeeds()) as sandbox:
        script = "echo ${HTTPS_PROXY-none}; exec 3<>/dev/tcp/127.0.0.1/3128"
        result = sandbox.run(["/bin/bash", "-c", script], deadline_seconds=10)
    assert result.output.startswith("none\n")
    assert result.exit_code != 0


def test_a_host_that_the_operator_does_not_allow_is_refused(maker: Bubblewrap) -> None:
    with pytest.raises(InvalidMessage, match=r"a way to .example"):
        maker.open(SandboxNeeds(network=("example.com",)))
