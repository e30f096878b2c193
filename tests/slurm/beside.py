"""A job of the stand-in for NeMo-RL's ray.sub, with Rollyard beside it, as docs/nemo-rl.md says."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from launch.config import CONFIG
from launch.demo import DEMO_TOOL_CALLS, POLICY
from launch.free_ports import free_range
from tests.llm_fixtures import ROOT
from tests.slurm.cluster import SlurmCluster
from tests.slurm.job import Job

PAGE = (ROOT / "docs" / "nemo-rl.md").read_text()
(SHELL,) = re.findall(r"^((?:    .*\n)+)", PAGE.partition("## Submit it")[2], re.MULTILINE)[:1]
(TRAINER,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:1]
PROGRAMS = Path(sys.executable).parent


class BesideJob(Job):
    """A job of four nodes, in a directory of its own; it may be submitted again."""

    def __init__(self, cluster: SlurmCluster, directory: Path) -> None:
        super().__init__(cluster, directory, ())
        self._home = directory
        self.directory = directory / "rollyard-slurm"
        self.trainer.mkdir()
        (directory / "train.py").write_text(TRAINER)
        shutil.copy(ROOT / "tests" / "slurm" / "training.py", directory / "training.py")
        shutil.copy(ROOT / "tests" / "slurm" / "ray_sub.sh", directory / "ray.sub")
        first, *_ = free_range(8)
        shutil.copytree(POLICY, directory / "policy")
        settings: dict[str, int | str] = {"slots": 4, "port": first, "sandbox-port": first + 7}
        settings["tool-calls"] = DEMO_TOOL_CALLS
        table = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
        (directory / CONFIG).write_text(f"[slurm]\n{table}\n")
        self._variables = {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}",
            "TRAINING_DIRECTORY": f"{self.trainer}",
            "TMPDIR": f"{self.temporary}",
            "SBATCH_PARTITION": "batch",
        }

    def submit(self) -> None:
        """Submit it as the page says."""
        told = self.cluster.command(
            *("bash", "-euc", f"cd {self._home}\n{SHELL}"), **self._variables
        )
        self.job_id = told.split()[-1]

    def log(self) -> str:
        """What the script and its tasks said."""
        files = sorted((*self._home.glob("slurm-*.out"), *self._home.glob("*-logs/*.log")))
        return "\n".join(f"{file.name}: {file.read_text()}" for file in files)

    def environment(self) -> dict[str, str]:
        """What the trainer is told."""
        lines = (self.directory / "environment").read_text().splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    def status_told(self) -> dict[str, object]:
        told: dict[str, object] = json.loads(self.rollyard("status", "--json"))
        return told
