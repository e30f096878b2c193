"""Trainers that say how they sample are refused a Run that samples otherwise."""

from pathlib import Path
from typing import Any

import pytest

from rollyard.errors import InvalidMessage
from rollyard.messages import Sampling
from tests.trainers.contract import GROUP_SIZE, TEMPERATURE, all_adapters
from tests.trainers.orchestrator import Orchestrator
from tests.trainers.process import Process
from tests.trainers.training import rows

ADAPTERS = {adapter.name: adapter for adapter in all_adapters()}


@pytest.mark.parametrize("name", ["nemo_rl", "rllm", "trl", "trl_async", "verl"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group_size": 2}, f"={GROUP_SIZE}, and the run has group_size=2"),
        ({"sampling": Sampling(temperature=1.0)}, f"={TEMPERATURE}, and the run samples at 1.0"),
    ],
    ids=["groups", "temperature"],
)
def test_a_run_that_samples_otherwise_is_refused_before_it_samples(
    tmp_path: Path, policy_dir: Path, name: str, settings: dict[str, Any], said: str
) -> None:
    orchestrator, process = Orchestrator(), Process(tmp_path)
    with (
        pytest.raises(InvalidMessage, match=said) as refused,
        process.trainer(
            ADAPTERS[name], orchestrator, rows(4), policy_dir, steps=1, **settings
        ) as trainer,
    ):
        trainer.train()
    assert refused.value.fix
    assert not any("request" in moment for moment in process.moments)
