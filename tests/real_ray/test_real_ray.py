"""`rollyard ray` on a real cluster of Ray: three nodes of it, each at an address of its own."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launch.free_ports import free_range
from tests.ray.job import ADDRESSES, GONE_SECONDS, ROOT, RayJob
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

RAY_SECONDS = 120.0
RAY = Path(sys.executable).parent / "ray"
AGENTS = {f"agent-{address}" for address in ADDRESSES}


class RealCluster:
    """Ray's processes; `directory` has their sockets, so that it has to be short."""

    def __init__(self, directory: Path) -> None:
        self._port = free_range(1).start
        self._directory = directory
        self.variables = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ADDRESS": f"{ADDRESSES[0]}:{self._port}",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(directory),
        }
        self._nodes: list[subprocess.Popen[bytes]] = []
        for address, gpus in zip(ADDRESSES, (0, 2, 2), strict=True):
            self._start(address, gpus)
            until(f"Ray runs at {address}", lambda: self._runs(address), RAY_SECONDS)  # noqa: B023

    def _runs(self, address: str) -> bool:
        return "Ray runtime started" in (self._directory / f"{address}.log").read_text()

    def _start(self, address: str, gpus: int) -> None:
        first = address == ADDRESSES[0]
        at = (
            ("--head", "--port", str(self._port))
            if first
            else ("--address", self.variables["RAY_ADDRESS"])
        )
        dashboard = ("--include-dashboard", "false") if first else ()
        words = ("--num-cpus", "2", "--num-gpus", str(gpus), *dashboard)
        log = (self._directory / f"{address}.log").open("wb")
        self._nodes.append(
            subprocess.Popen(
                [
                    *(str(RAY), "start", *at, "--node-ip-address", address, *words, "--block"),
                    *("--object-store-memory", "80000000", "--disable-usage-stats"),
                    *(("--temp-dir", str(self._directory)) if first else ()),
                ],
                env={
                    **os.environ,
                    **{k: v for k, v in self.variables.items() if k != "RAY_ADDRESS"},
                },
                stdout=log,
                stderr=log,
            )
        )

    def worker_of(self, process: psutil.Process) -> psutil.Process:
        """The worker of Ray that holds a node."""
        parent = process.parent()
        assert parent is not None
        assert "ray::" in " ".join(parent.cmdline()), parent.cmdline()
        return parent

    def end(self) -> None:
        for node in self._nodes:
            node.send_signal(signal.SIGTERM)
        for node in self._nodes:
            node.wait(60)


@pytest.fixture
def cluster() -> Iterator[RealCluster]:
    with tempfile.TemporaryDirectory(prefix="ray") as directory:
        made = RealCluster(Path(directory))
        yield made
        made.end()


def test_a_trainer_gets_its_groups_and_a_worker_that_ray_lost_is_started_again(
    cluster: RealCluster, tmp_path: Path
) -> None:
    command = (
        *(sys.executable, "-m", "launch.cli", "ray", "--llm", "scripted", "--slots", "4"),
        *("--gpu-nodes", "2", "--cpu-nodes", "1", "--tensor-parallel", "2"),
        *("--start-seconds", "120"),
    )
    job = RayJob(tmp_path, command, cluster.variables, trains=True)
    try:
        first = job.wait_for_batch_of("all machines have a part in a batch", AGENTS)
        assert len(first["prompts"]) == 16
        cluster.worker_of(job.node(ADDRESSES[2])).kill()
        job.wait_for("its loss is noticed", f"{ADDRESSES[2]} was lost by Ray")
        job.wait_for_batch_of("it has a part again", AGENTS)
        (job.trainer / "enough").touch()
        assert job.process.wait(GONE_SECONDS) == 0, job.log()
        job.assert_nothing_is_left()
    finally:
        job.end()
