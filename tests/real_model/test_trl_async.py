"""TRL's AsyncGRPOTrainer learns by its example: vLLM samples, and serves each checkpoint."""

from pathlib import Path

import pytest

from tests.deployment_fixtures import StartDeployment
from tests.trl_examples import gain

pytestmark = pytest.mark.timeout(900)  # vLLM starts

STEPS = 12
LEAST_GAIN = 0.2


def test_trls_asynchronous_trainer_lifts_the_pass_rate(
    start_deployment: StartDeployment, tmp_path: Path
) -> None:
    deployment = start_deployment("--slots", "32")
    assert gain("train_async.py", deployment, tmp_path / "trl", steps=STEPS) >= LEAST_GAIN
