"""TRL's AsyncGRPOTrainer learns by its example: vLLM samples, and serves each checkpoint."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.deployment_fixtures import StartDeployment
from tests.llm_fixtures import POLICY, ROOT

pytestmark = pytest.mark.timeout(900)  # vLLM starts

TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
STEPS = 12
LEAST_GAIN = 0.2


def test_trls_asynchronous_trainer_lifts_the_pass_rate(
    start_deployment: StartDeployment, tmp_path: Path
) -> None:
    deployment = start_deployment("--slots", "32")
    command = [str(TRL_PYTHON), str(ROOT / "examples" / "trl" / "train_async.py"), str(POLICY)]
    options = ["--url", deployment.url, "--output", str(tmp_path / "trl"), "--steps", str(STEPS)]
    said = subprocess.run(
        [*command, *options], check=True, timeout=600, stdout=subprocess.PIPE, text=True
    ).stdout
    solved = json.loads(said.splitlines()[-1])
    assert solved["after"] - solved["before"] >= LEAST_GAIN, said
