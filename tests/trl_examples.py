"""The examples of TRL's trainers, run as a user runs them."""

import json
import subprocess
from pathlib import Path

from tests.deployment_fixtures import RunningDeployment
from tests.llm_fixtures import POLICY, ROOT

PYTHON = ROOT / ".venv-trl" / "bin" / "python"
SECONDS = 600


def gain(example: str, deployment: RunningDeployment, output: Path, *, steps: int) -> float:
    """How much of all problems the demo's policy solves after its training that it did not solve
    before."""
    command = [str(PYTHON), str(ROOT / "examples" / "trl" / example), str(POLICY)]
    options = ["--url", deployment.url, "--output", str(output), "--steps", str(steps)]
    said = subprocess.run(
        [*command, *options], check=True, timeout=SECONDS, stdout=subprocess.PIPE, text=True
    ).stdout
    print(said)
    solved = json.loads(said.splitlines()[-1])
    return float(solved["after"] - solved["before"])
