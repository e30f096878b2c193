"""TRL's GRPOTrainer learns by its example: real vLLM samples, and serves each checkpoint."""

from pathlib import Path

import pytest

from tests.deployment_fixtures import StartDeployment
from tests.trl_examples import gain

pytestmark = pytest.mark.timeout(900)  # vLLM starts, beside other tests

STEPS = 20
LEAST_GAIN = 0.2


def test_trls_own_trainer_lifts_the_pass_rate(
    start_deployment: StartDeployment, tmp_path: Path
) -> None:
    deployment = start_deployment("--slots", "32")
    assert gain("train.py", deployment, tmp_path / "trl", steps=STEPS) >= LEAST_GAIN
