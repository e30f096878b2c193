"""The example of LoRA learns: vLLM samples with each adapter that it publishes."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.deployment_fixtures import StartDeployment
from tests.llm_fixtures import POLICY, ROOT

pytestmark = pytest.mark.timeout(900)  # vLLM starts, and computes with adapters slowly on CPUs

TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
LEAST_GAIN = 0.2


def test_an_adapter_that_is_published_at_each_step_lifts_the_pass_rate(
    start_deployment: StartDeployment, tmp_path: Path
) -> None:
    deployment = start_deployment("--", "--enable-lora", "--max-lora-rank", "16")
    command = [str(TRL_PYTHON), str(ROOT / "examples" / "lora.py"), str(POLICY)]
    options = ["--url", deployment.url, "--checkpoints", str(tmp_path / "checkpoints")]
    said = subprocess.run(
        [*command, *options], check=True, timeout=600, capture_output=True, text=True
    ).stdout
    before, after = (float(rate) for rate in re.findall(r"solved ([\d.]+)", said))
    assert after - before >= LEAST_GAIN, said
