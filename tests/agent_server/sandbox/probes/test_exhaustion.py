"""Sandboxes that use up all they can get: the machine goes on, and nothing of them stays."""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.command import SandboxLimits
from agent_server.sandbox.held_sandbox import HeldSandbox
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
from agent_server.sandbox.totals import SandboxTotals
from tests.agent_server.sandbox.probes.exhaustion import EXHAUSTION
from tests.agent_server.sandbox.probes.probe import Probe
from tests.waiting import until

MEMORY_BYTES = 160 << 20
GONE_SECONDS = 2.0
USABLE_SECONDS = 5.0


@pytest.fixture(scope="module")
def tight() -> Iterator[Bubblewrap]:
    """Makes sandboxes with totals that are quick to reach."""
    limits = SandboxLimits(
        processes=48, memory_bytes=1 << 30, cpu_seconds=2, file_bytes=8 << 20, tmp_bytes=32 << 20
    )
    totals = SandboxTotals(
        memory_bytes=MEMORY_BYTES, processes=64, cpus=1, disk_bytes=48 << 20, inodes=5000
    )
    maker = Bubblewrap(SandboxSettings(limits=limits, totals=totals))
    yield maker
    maker.close()


@pytest.mark.parametrize("probe", EXHAUSTION, ids=lambda probe: probe.name)
def test_a_sandbox_that_uses_up_all_it_gets_leaves_the_machine_usable(
    probe: Probe, tight: Bubblewrap
) -> None:
    with tight.open(SandboxNeeds()) as sandbox:
        with machine_in_use():
            sandbox.run(probe.argv({}), deadline_seconds=0.6)
        # A process that is being killed for memory may still take pages: the kernel charges them.
        assert peak_bytes(sandbox) <= MEMORY_BYTES + (1 << 20)
        sandbox.run(
            ["/bin/bash", "-c", "rm -rf /tmp/* /dev/shm/* * &>/dev/null"], deadline_seconds=10
        )
        fine = sandbox.run(["/bin/echo", "fine"], deadline_seconds=10)
        assert fine.output == "fine\n"
    until("everything of it is gone", lambda: not remains(tight.ledger.home), GONE_SECONDS)


@contextlib.contextmanager
def machine_in_use() -> Iterator[None]:
    """Meanwhile the machine makes processes and files, none of which may take long."""
    done = threading.Event()

    def use() -> None:
        with tempfile.TemporaryFile() as file:
            while not done.wait(0.05):
                subprocess.run(["/bin/true"], check=True, timeout=USABLE_SECONDS)
                file.write(bytes(1 << 16))

    with ThreadPoolExecutor(1) as threads:
        using = threads.submit(use)
        yield
        done.set()
        using.result()


def peak_bytes(sandbox: HeldSandbox) -> int:
    """Most memory that the sandbox had at once, where control groups count it."""
    for group in sandbox.cgroup.directories:
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with contextlib.suppress(OSError):
                return int((group / name).read_text())
    return 0


def remains(home: Path) -> list[str]:
    """Directories, mounts and processes of the sandboxes of this home."""
    inside = f"{home}/sandbox-"
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if inside in line]
    processes = [
        str(process.pid)
        for process in psutil.process_iter(["cmdline"])
        if any(inside in word for word in process.info["cmdline"] or ())
    ]
    return [*map(str, home.glob("sandbox-*")), *mounts, *processes]
