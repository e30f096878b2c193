"""Rollyard on an emulated Slurm cluster: two nodes with GPUs, two without, and real daemons."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.ports import free_range
from tests.slurm.cluster import SlurmCluster
from tests.waiting import until

TRAINER = Path(__file__).parent / "trainer.py"
READY_SECONDS = 240.0
GONE_SECONDS = 90.0
"""Time for all processes of all nodes to end, on a machine that does much else."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as started:
        yield started


class Job:
    """A job of the scripted fleet, with the trainer of these tests."""

    def __init__(self, cluster: SlurmCluster, directory: Path, *trainer: str) -> None:
        self.cluster = cluster
        self.directory = directory
        self.batches = directory / "batches"
        script = f"{sys.executable} {TRAINER} --file {self.batches}"
        told = self.rollyard(
            "submit",
            *("--command", " ".join((script, *trainer))),
            *("--llm", "scripted", "--slots", "4", "--start-seconds", "180"),
            *("--gpu-nodes", "2", "--gpus-per-node", "2", "--tensor-parallel", "2"),
            *("--cpu-nodes", "2", "--port", str(free_range(10).start)),
            *("--gpu-sbatch=--partition=gpu", "--cpu-sbatch=--partition=cpu"),
        )
        self.job_id = told.split()[3].rstrip(",")

    def rollyard(self, *words: str) -> str:
        command = [sys.executable, "-m", "launch.cli", "slurm", *words]
        return self.cluster.command(*command, "--directory", str(self.directory))

    def log(self) -> str:
        path = self.directory / "job.log"
        return path.read_text() if path.exists() else ""

    def batches_so_far(self) -> int:
        return len(self.batches.read_text().splitlines()) if self.batches.exists() else 0

    def wait_for_batches(self, more: int, what: str) -> None:
        wanted = self.batches_so_far() + more
        until(what, lambda: self.batches_so_far() >= wanted, READY_SECONDS)

    def wait_until_over(self, seconds: float) -> None:
        until(f"the job is over: {self.log()}", lambda: not self.cluster.jobs(), seconds)


def test_a_trainer_gets_its_groups_and_then_everything_is_gone(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path / "job")
    job.wait_for_batches(1, "the trainer has its groups")
    job.wait_until_over(GONE_SECONDS)
    assert not cluster.left_behind()
    assert "Killed" not in job.log()
    (counts,) = map(json.loads, job.batches.read_text().splitlines())
    assert sum(counts.values()) == 64
    assert counts.keys() == {"agent-gpu1", "agent-gpu2", "agent-cpu1", "agent-cpu2"}
