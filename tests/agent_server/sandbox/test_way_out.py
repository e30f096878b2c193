"""Sandboxes that are led to one server of this machine, and to nothing else."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Address, OpenSandbox, SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.settings import UNSAFE_LOCAL, SandboxSettings
from agent_server.sandbox.unsafe_local import UnsafeLocal

HOST = "127.0.0.1"
SECONDS = 10.0

ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as peer:
    peer.sendall(b"and you")
    peer.shutdown(socket.SHUT_WR)
    print(peer.makefile().read())
"""


class Greeter:
    """A server of this machine that greets whoever connects, and then says everything back."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.address: Address = self._listener.getsockname()
        self.greeted = threading.Event()
        self.left = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                peer, _ = self._listener.accept()
                # A peer that leaves before it has read the greeting resets the connection.
                with peer, contextlib.suppress(ConnectionError):
                    peer.sendall(b"hello ")
                    self.greeted.set()
                    while chunk := peer.recv(1 << 16):
                        peer.sendall(chunk)
                self.left.set()


@pytest.fixture
def greeter() -> Iterator[Greeter]:
    with closing(Greeter()) as made:
        yield made


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[OpenSandbox]:
    with sandboxes.open(SandboxNeeds()) as opened:
        yield opened


def ask(sandbox: OpenSandbox, address: Address) -> str:
    """What a command hears at this address; empty if nobody is there."""
    argv = ["/usr/bin/python3", "-c", ASK, address[0], str(address[1])]
    done = sandbox.run(argv, deadline_seconds=SECONDS)
    return done.output.strip() if done.exit_code == 0 else ""


def test_the_server_is_reached_at_an_address_inside(sandbox: OpenSandbox, greeter: Greeter) -> None:
    with sandbox.leading_to(greeter.address) as inside:
        assert ask(sandbox, inside) == "hello and you"
        assert ask(sandbox, inside) == "hello and you"


def test_no_other_server_of_this_machine_is(sandbox: OpenSandbox, greeter: Greeter) -> None:
    with closing(Greeter()) as other, sandbox.leading_to(greeter.address) as inside:
        ports = {greeter.address[1], other.address[1]} - {inside[1]}
        for port in ports:
            assert ask(sandbox, (HOST, port)) == ""
        listening = sandbox.run(["/bin/cat", "/proc/net/tcp"], deadline_seconds=SECONDS).output
        assert len(listening.splitlines()[1:]) == 1
        assert not other.greeted.is_set()


def test_no_name_is_looked_up(sandbox: OpenSandbox, greeter: Greeter) -> None:
    with sandbox.leading_to(greeter.address):
        assert ask(sandbox, ("example.com", 80)) == ""
        names = sandbox.run(["/usr/bin/getent", "ahosts", "example.com"], deadline_seconds=SECONDS)
        assert names.exit_code != 0
        lines = sandbox.run(["/bin/cat", "/proc/net/dev"], deadline_seconds=SECONDS).output
        assert [line.split(":")[0].strip() for line in lines.splitlines()[2:]] == ["lo"]


def test_each_sandbox_is_led_to_its_own_server_alone(
    sandboxes: Bubblewrap, sandbox: OpenSandbox, greeter: Greeter
) -> None:
    with sandboxes.open(SandboxNeeds()) as other, sandbox.leading_to(greeter.address) as inside:
        assert ask(other, inside) == ""
        with closing(Greeter()) as theirs, other.leading_to(theirs.address) as beside:
            assert ask(other, beside) == "hello and you"
        assert not greeter.greeted.is_set()


def test_the_grader_of_a_sandbox_is_led_nowhere(sandbox: OpenSandbox, greeter: Greeter) -> None:
    with sandbox.leading_to(greeter.address) as inside, sandbox.fresh() as fresh:
        argv = ["/usr/bin/python3", "-c", ASK, inside[0], str(inside[1])]
        assert fresh.run(argv, deadline_seconds=SECONDS).exit_code != 0


def test_the_way_ends_with_its_block(sandbox: OpenSandbox, greeter: Greeter) -> None:
    with sandbox.leading_to(greeter.address) as inside:
        stays = f"(exec 3<>/dev/tcp/{inside[0]}/{inside[1]}; sleep 60) &"
        sandbox.bash(stays, deadline_seconds=SECONDS)
        assert greeter.greeted.wait(SECONDS)
    assert greeter.left.wait(SECONDS)
    assert ask(sandbox, inside) == ""


def test_the_server_hears_that_a_command_was_killed(sandbox: OpenSandbox, greeter: Greeter) -> None:
    with sandbox.leading_to(greeter.address) as inside:
        dies = f"exec 3<>/dev/tcp/{inside[0]}/{inside[1]}; head -c 5 <&3; kill -9 $$"
        done = sandbox.run(["/bin/bash", "-c", dies], deadline_seconds=SECONDS)
        assert (done.output, done.exit_code) == ("hello", 137)
        assert greeter.left.wait(SECONDS)


def test_a_server_that_is_away_is_not_reached(sandbox: OpenSandbox) -> None:
    with socket.create_server((HOST, 0)) as listener:
        away: Address = listener.getsockname()
    with sandbox.leading_to(away) as inside:
        assert ask(sandbox, inside) == ""


def test_a_closed_sandbox_is_led_nowhere(sandbox: OpenSandbox, greeter: Greeter) -> None:
    sandbox.close()
    with pytest.raises(SandboxUnavailable, match="closed"), sandbox.leading_to(greeter.address):
        pass


def test_without_isolation_the_server_is_where_it_is(greeter: Greeter) -> None:
    maker = UnsafeLocal(SandboxSettings(provider=UNSAFE_LOCAL))
    with (
        closing(maker),
        maker.open(SandboxNeeds()) as sandbox,
        sandbox.leading_to(greeter.address) as inside,
    ):
        assert inside == greeter.address
        assert ask(sandbox, inside) == "hello and you"
