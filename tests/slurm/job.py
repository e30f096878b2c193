"""A job of the fleet on the emulated cluster, with the trainer of these tests."""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.fleet import FleetPlan, read_fleet
from launch.free_ports import free_range
from rollyard.api import OrchestratorAPI
from rollyard.messages import FleetStatus
from tests.slurm.cluster import SlurmCluster
from tests.waiting import until

TRAINER = Path(__file__).parent / "trainer.py"
READY_SECONDS = 240.0
GONE_SECONDS = 90.0
"""Time for all processes of all nodes to end, on a machine that does much else."""
SCRIPTED = ("--llm", "scripted", "--start-seconds", "180")

Batch = Mapping[str, Any]


class Job:
    """A job of two nodes with GPUs and two without; in one directory, it may be submitted again."""

    def __init__(self, cluster: SlurmCluster, directory: Path, engine: Sequence[str]) -> None:
        self.cluster = cluster
        self.directory = directory / "job"
        self.trainer = directory / "trainer"
        self.temporary = Path(tempfile.mkdtemp(prefix="rollyard-slurm-"))
        self.temporary.chmod(0o755)  # sandboxes are another user's
        self._engine = engine
        self._port = free_range(12).start
        self.job_id = ""

    def submit(self) -> None:
        command = f"{sys.executable} {TRAINER} --directory {self.trainer}"
        told = self.rollyard(
            "submit",
            *("--command", command, "--slots", "4", *self._engine),
            *("--gpu-nodes", "2", "--gpus-per-node", "2", "--tensor-parallel", "2"),
            *("--cpu-nodes", "2", "--port", str(self._port)),
            *("--gpu-sbatch=--partition=gpu", "--cpu-sbatch=--partition=cpu"),
            *("--queues", str(self.directory.parent / "disk")),
        )
        self.job_id = told.split()[3].rstrip(",")

    def rollyard(self, *words: str) -> str:
        command = [sys.executable, "-m", "launch.cli", "slurm", *words]
        directory = ("--directory", str(self.directory))
        return self.cluster.command(*command, *directory, TMPDIR=str(self.temporary))

    def log(self) -> str:
        path = self.directory / "job.log"
        return path.read_text() if path.exists() else ""

    @property
    def fleet(self) -> FleetPlan:
        return read_fleet(self.directory)

    def status(self) -> FleetStatus:
        """What the orchestrator says of everything."""
        fleet = self.fleet
        api = OrchestratorAPI(fleet.orchestrator_url, token_file=fleet.settings.token_file)
        try:
            return api.status()
        finally:
            api.close()

    def batches(self) -> list[Batch]:
        path = self.trainer / "batches"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_batches(self, more: int, what: str, seconds: float = READY_SECONDS) -> list[Batch]:
        """The batches that the trainer gets from now on, so many at least."""
        before = len(self.batches())

        def has_them() -> bool:
            has = len(self.batches()) >= before + more
            assert has or self.cluster.jobs(), f"the job is over: {self.log()}"
            return has

        until(what, has_them, seconds)
        return self.batches()[before:]

    def let_it_end(self) -> None:
        """Have the trainer end after the batch that it waits for."""
        (self.trainer / "enough").touch()

    def wait_until_gone(self) -> None:
        """Wait until the job is over, and nothing of it runs."""
        until(f"the job is over: {self.log()}", lambda: not self.cluster.jobs(), GONE_SECONDS)
        until("nothing is left behind", lambda: not self.cluster.left_behind(), GONE_SECONDS)

    def assert_nothing_is_littered(self) -> None:
        """No sandbox, socket or half of a file is left, on the shared disk or elsewhere."""
        assert [path.name for path in self.temporary.iterdir()] == []
        self.assert_its_directory_is_clean()

    def assert_its_directory_is_clean(self) -> None:
        """No socket or half of a file is left on the shared disk."""
        left = [path for path in self.directory.rglob("*") if not (path.is_file() or path.is_dir())]
        assert not left
        assert {path.name for path in self.directory.iterdir()} <= KEPT
        assert {path.name for path in self.directory.glob("nodes/*/*")} <= KEPT_OF_NODES

    def assert_sound(self) -> None:
        """Nothing was given to the trainer twice, and nothing was given up."""
        batches = self.batches()
        assert len({batch["batch"] for batch in batches}) == len(batches)
        prompts = [prompt for batch in batches for prompt in batch["prompts"]]
        assert len(set(prompts)) == len(prompts)
        questions = [question for batch in batches for question in batch["questions"]]
        assert len(set(questions)) == len(questions)
        counters = json.loads((self.trainer / "counters").read_text())
        assert counters["groups_dead"] == counters["jobs_dead"] == 0
        assert counters["groups_fed"] == sum(counters[kind] for kind in ENDS_OF_GROUPS)
        assert counters["groups_kept"] >= len(prompts)


KEPT = {
    *("slurm.json", "job.sh", "job-id", "job.log", "fleet.json", "environment", "trainer.log"),
    *("tokens", "redis-password", "nodes", "beside.json", "redis"),
}
KEPT_OF_NODES = {"identity", "parts.json", "failed", "logs"}
ENDS_OF_GROUPS = ("groups_kept", "groups_filtered", "groups_dead", "open_groups")


def shares(batches: Sequence[Batch]) -> Counter[str]:
    """Agent server -> its results in these batches."""
    return sum((Counter(batch["servers"]) for batch in batches), Counter())
