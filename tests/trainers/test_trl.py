"""TRL's own GRPOTrainer, beyond what `test_adapters.py` says of all trainers."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from dapo import dapo_loss, taken_logprobs, to_tensors
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from rollyard.client import Client
from rollyard.errors import Conflict, InvalidMessage
from rollyard.messages import Batch, RunSettings, Sampling, Unit
from rollyard.trainers import advantages
from rollyard.trainers.sequences import rewards
from rollyard.trainers.trl import Rollouts, grpo_trainer
from rollyard.trainers.trl.training import STATE, last_checkpoint
from rollyard.training_run import TrainingRun
from tests.trainers.adapters.trl import ADAPTER
from tests.trainers.orchestrator import FIRST_VERSION, Orchestrator
from tests.trainers.process import Process
from tests.trainers.sampled import GROUP_SIZE, RandomGroups
from tests.trainers.training import Training, rows

GROUPS = 2
ROWS = 12


class Seen(TrainingRun):
    """Remembers the Batches that it returned."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.returned: list[Batch] = []

    def rollout(self, *given: Any, **named: Any) -> Batch:
        self.returned.append(super().rollout(*given, **named))
        return self.returned[-1]


def run_on(orchestrator: RandomGroups, **settings: Any) -> Seen:
    given = {"group_size": GROUP_SIZE, "sampling": Sampling(temperature=0.7), **settings}
    rows = ({"data_source": "x", "row": number} for number in range(ROWS))
    return Seen(orchestrator.take_over(), RunSettings(run_id="run", **given), rows)


def config(directory: Path, **changes: Any) -> GRPOConfig:
    given = {
        "max_steps": ROWS // GROUPS,
        "per_device_train_batch_size": GROUPS * GROUP_SIZE,
        "num_generations": GROUP_SIZE,
        "temperature": 0.7,
        "loss_type": "dapo",
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "learning_rate": 1e-3,
        "save_strategy": "steps",
        "save_steps": 1,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        **changes,
    }
    return GRPOConfig(output_dir=str(directory / "output"), **given)


class Losses:
    """What the trainer's loss was at each step, and what the plain loop's would have been."""

    def __init__(self) -> None:
        self.theirs: list[float] = []
        self.ours: list[float] = []


def trainer_on(
    run: Seen, directory: Path, policy_dir: Path, losses: Losses | None = None, **changes: Any
) -> tuple[Rollouts, Any]:
    settings = config(directory, **changes)
    rollouts = Rollouts(Client("http://127.0.0.1:9", token="none"), run, directory / "published")
    base = grpo_trainer()

    class Watched(base):  # type: ignore[misc, valid-type]
        def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            loss: torch.Tensor = super()._compute_loss(model, inputs)
            if losses is not None:
                losses.theirs.append(loss.item())
                losses.ours.append(plain_loss(model, run.returned[-1]))
            return loss

    trainer = Watched(
        model=AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(policy_dir),
        args=settings,
        **rollouts.arguments(settings),
    )
    return rollouts, trainer


def plain_loss(model: Any, batch: Batch) -> float:
    """The example's, with TRL's advantages: its deviation is of a sample, plus 1e-4."""
    tensors = to_tensors(batch, pad_token_id=0)
    found = advantages.grpo(*rewards(batch), correction=1, epsilon=1e-4)
    tensors = dataclasses.replace(tensors, advantages=torch.from_numpy(found).float())
    with torch.no_grad():
        logprobs = taken_logprobs(model, tensors.token_ids, temperature=0.7)
    return dapo_loss(logprobs, tensors).item()


@pytest.fixture
def orchestrator() -> RandomGroups:
    return RandomGroups()


def test_its_loss_on_a_batch_is_the_plain_loops(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path
) -> None:
    losses = Losses()
    rollouts, trainer = trainer_on(run_on(orchestrator), tmp_path, policy_dir, losses)
    rollouts.train(trainer)
    assert len(losses.theirs) == ROWS // GROUPS
    assert losses.theirs == pytest.approx(losses.ours, abs=1e-5)
    assert max(map(abs, losses.theirs)) > 1e-2


def test_the_weights_that_are_published_are_the_trained_ones(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path
) -> None:
    rollouts, trainer = trainer_on(run_on(orchestrator), tmp_path, policy_dir, max_steps=2)
    rollouts.train(trainer)
    published = AutoModelForCausalLM.from_pretrained(orchestrator.checkpoints[-1])
    trained = dict(trainer.model.named_parameters())
    for name, weights in published.named_parameters():
        assert torch.equal(weights, trained[name]), name


def test_an_evaluation_before_the_training_is_of_the_trainers_own_weights(
    tmp_path: Path, policy_dir: Path
) -> None:
    training = Training(ADAPTER, Orchestrator(), tmp_path, policy_dir, steps=1)
    process = Process(tmp_path)
    with process.trainer(ADAPTER, training.orchestrator, rows(4), policy_dir, steps=1) as trainer:
        trainer.evaluate(rows(2, first=100))
        trainer.evaluate(rows(2, first=100))
    assert training.orchestrator.versions == [FIRST_VERSION, FIRST_VERSION + 1]
    training.run_process()
    trained = list(training.orchestrator.versions)
    with process.trainer(ADAPTER, training.orchestrator, rows(4), policy_dir, steps=1) as trainer:
        trainer.evaluate(rows(2, first=100))
    assert training.orchestrator.versions == trained, "the trained weights are served"


def test_a_checkpoint_without_the_runs_state_is_not_whole(tmp_path: Path) -> None:
    for name in ("checkpoint-2", "checkpoint-10", "checkpoint-11"):
        (tmp_path / name).mkdir()
    assert last_checkpoint(tmp_path) is None
    for name in ("checkpoint-2", "checkpoint-10"):
        (tmp_path / name / STATE).touch()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


@pytest.mark.parametrize("groups", [1, 4])
def test_a_batch_of_another_size_is_refused_and_its_rows_are_fed_to_a_new_run(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path, groups: int
) -> None:
    rollouts, trainer = trainer_on(run_on(orchestrator), tmp_path, policy_dir, max_steps=2)
    rollouts.train(trainer)
    changes: dict[str, Any] = {"max_steps": 3, "per_device_train_batch_size": groups * GROUP_SIZE}
    rollouts, trainer = trainer_on(run_on(orchestrator), tmp_path, policy_dir, **changes)
    with pytest.raises(Conflict, match=f"TRL takes {groups} groups, .* requested with {GROUPS}"):
        rollouts.train(trainer)
    assert len(orchestrator.delivered) == 1
    run = run_on(RandomGroups())
    rollouts, trainer = trainer_on(run, tmp_path, policy_dir, **changes)
    rollouts.train(trainer)
    fed = [group.prompt.instance["row"] for group in run.returned[0].groups]
    assert fed == list(range(2 * GROUPS, 2 * GROUPS + groups))


@pytest.mark.parametrize(
    ("settings", "changes", "said"),
    [
        ({"group_size": 8}, {}, r"num_generations=4, and the run has group_size=8"),
        ({"unit": Unit.TRAJECTORIES, "criterion": "complete"}, {}, "unit='trajectories'"),
        ({}, {"temperature": 1.0}, r"temperature=1.0, and the run samples at 0.7"),
        ({}, {"top_p": 0.9}, r"top_p=0.9, and the run samples at 1.0; give both the same top_p"),
        ({}, {"top_k": 20}, r"top_k=20, but it is Rollyard that samples"),
        ({}, {"max_steps": -1}, "set max_steps"),
        ({}, {"save_total_limit": 1}, r"save_total_limit=1 removes .*; save_total_limit=2 or more"),
        (
            {},
            {"save_total_limit": 2, "metric_for_best_model": "reward"},
            "save_total_limit=3 or more",
        ),
        (
            {},
            {"gradient_accumulation_steps": 4, "steps_per_generation": 2},
            "no multiple of gradient_accumulation_steps=4",
        ),
        ({}, {"num_iterations": 2, "max_steps": 3, "save_steps": 2}, "max_steps=3 ends in the"),
        ({}, {"num_iterations": 2, "save_steps": 3}, "save_steps=3 ends in the middle .* 2 steps"),
        ({}, {"num_iterations": 4, "max_steps": 8, "save_steps": 0.2}, "save_steps=2 ends"),
    ],
)
def test_settings_that_do_not_agree_are_refused(
    orchestrator: RandomGroups,
    tmp_path: Path,
    policy_dir: Path,
    settings: dict[str, Any],
    changes: dict[str, Any],
    said: str,
) -> None:
    run = run_on(orchestrator, **settings)
    with pytest.raises(InvalidMessage, match=said):
        trainer_on(run, tmp_path, policy_dir, **changes)
