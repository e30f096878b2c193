"""Every probe is tried in a real sandbox, beside a host that has something to take."""

import contextlib
import ctypes
import platform
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from tests.agent_server.sandbox.probes.files import FILES
from tests.agent_server.sandbox.probes.kernel import KERNEL
from tests.agent_server.sandbox.probes.network import NETWORK
from tests.agent_server.sandbox.probes.probe import Probe
from tests.agent_server.sandbox.probes.processes import PROCESSES

PROBES = (*FILES, *PROCESSES, *NETWORK, *KERNEL)


def host_address() -> str:
    """An address of this machine beside the loopback's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0]).replace("0.0.0.0", "127.0.0.1")


def _add_key(name: str) -> None:
    """Put a key into the keyring of this thread's session, which what it starts inherits."""
    add_key, session = {"x86_64": 248, "aarch64": 217}[platform.machine()], -3
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(add_key, b"user", name.encode(), b"secret", 6, session) > 0


@pytest.fixture(scope="module")
def surroundings(sandboxes: Bubblewrap) -> Iterator[dict[str, str]]:
    """A file, a process, sockets and another sandbox that must not be reached."""
    marker = f"rollyard-{secrets.token_hex(8)}"
    files = [
        Path("/tmp") / marker,
        Path("/dev/shm") / marker,
    ]  # world-readable: what is denied, the sandbox denies
    with contextlib.ExitStack() as held:
        for file in files:
            file.write_text(marker)
            file.chmod(0o644)
            held.callback(file.unlink)
        tcp = held.enter_context(socket.create_server(("", 0)))
        udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("", tcp.getsockname()[1]))
        for address in (f"\0{marker}", f"/tmp/{marker}.socket"):
            unix = held.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
        held.callback(Path(f"/tmp/{marker}.socket").unlink)
        _add_key(marker)
        outside = subprocess.Popen(["/bin/sleep", "600"], env={"SECRET": marker})
        held.callback(outside.wait)
        held.callback(outside.kill)
        other = held.enter_context(sandboxes.open(SandboxNeeds()))
        other.bash(
            f"sleep 600 {marker} &>/dev/null & echo {marker} > /tmp/{marker}", deadline_seconds=10
        )
        yield {
            "marker": marker,
            "start": marker[:-1],
            "end": marker[-1],
            "secret": str(files[0]),
            "other": str(sandboxes.ledger.home),
            "pid": str(outside.pid),
            "port": str(tcp.getsockname()[1]),
            "address": host_address(),
            "socket": f"/tmp/{marker}.socket",
        }
        assert outside.poll() is None


@pytest.fixture(scope="module")
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds()) as opened:
        yield opened


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_nothing_is_got_out_of_a_sandbox(
    probe: Probe, sandbox: Sandbox, surroundings: dict[str, str]
) -> None:
    result = sandbox.run(probe.argv(surroundings), deadline_seconds=20)
    assert "ESCAPED" not in result.output
    assert "HELD" in result.output, result


def test_there_are_no_two_probes_of_one_name() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)
