"""What verl's adapter does beyond the contract: its validation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollyard.client import Client
from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, RunSettings, Sampling
from rollyard.rows import Row
from rollyard.trainers.verl import Rollouts
from rollyard.trainers.verl.config import weights_of
from rollyard.trainers.verl.fields import StoredSequence
from rollyard.training_run import TrainingRun
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE
from tests.trainers.sampled import RandomGroups
from tests.trainers.training import rows


class Validated(Rollouts):
    """Remembers what it stores, and the rows that it would evaluate."""

    def put(self, partition: str, uids: Sequence[str], found: Sequence[StoredSequence]) -> None:
        self.stored = found

    def evaluated(self, prompts: Sequence[Mapping[str, Any]]) -> Batch:
        self.asked = [self.row(prompt) for prompt in prompts]
        return self._run.rollout(len(prompts))


@pytest.fixture
def given(tmp_path: Path) -> Iterator[tuple[Any, Client, TrainingRun]]:
    """What `Rollouts` is made of. verl has written the weights that it begins with."""
    rollout = SimpleNamespace(
        n=GROUP_SIZE, temperature=TEMPERATURE, custom={"checkpoints": str(tmp_path / "weights")}
    )
    config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
        data=SimpleNamespace(train_batch_size=GROUPS),
        trainer=SimpleNamespace(
            default_local_dir=str(tmp_path / "output"), v1=SimpleNamespace(trainer_mode="sync")
        ),
        algorithm={},
    )
    weights = weights_of(tmp_path / "weights", 0)
    weights.mkdir(parents=True)
    (weights / "model.safetensors").touch()
    settings = RunSettings(
        run_id="run", group_size=GROUP_SIZE, sampling=Sampling(temperature=TEMPERATURE)
    )
    with Client("http://127.0.0.1:9", token="none", show_progress=False) as client:
        yield config, client, TrainingRun(RandomGroups().take_over(), settings, rows(12))


def prompts(**columns: Any) -> dict[str, Any]:
    """Those of a validation before the first step."""
    uids = [f"uid-{number}" for number in range(GROUPS)]
    return {"uid": uids, "global_steps": 0, "validate": True, **columns}


def test_a_validation_may_be_of_any_column(given: tuple[Any, Client, TrainingRun]) -> None:
    class Own(Validated):
        def row(self, prompt: Mapping[str, Any]) -> Row:
            return {"data_source": prompt["ability"], "question": prompt["raw_prompt"]}

    rollouts = Own(*given)
    rollouts.generate_sequences(
        prompts(
            ability=["math", "code"],
            raw_prompt=["1*2", "2*3"],
            data_source=["gsm8k", "humaneval"],
            reward_model=[{"ground_truth": "2"}, {"ground_truth": "6"}],
        )
    )
    assert rollouts.asked == [
        {"data_source": "math", "question": "1*2"},
        {"data_source": "code", "question": "2*3"},
    ]
    assert given[2].weight_version() == 1
    for record in rollouts.stored:
        assert record.fields["data_source"] == ("gsm8k", "humaneval")[record.prompt]
        assert "ability" not in record.fields


def test_a_column_that_is_not_there_is_an_error_that_says_what_to_override(
    given: tuple[Any, Client, TrainingRun],
) -> None:
    with pytest.raises(InvalidMessage, match=r"no data_source, .* extra_info.*; override `row`"):
        Validated(*given).generate_sequences(prompts(extra_info=[{}, {}]))
