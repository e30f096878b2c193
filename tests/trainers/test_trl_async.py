"""TRL's own AsyncGRPOTrainer, on Batches of an orchestrator in this process. What all adapters
promise is in `test_adapters.py`."""

import dataclasses
import random
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from dapo import dapo_loss, taken_logprobs, to_tensors
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl.experimental.async_grpo import AsyncGRPOConfig
from without_gpu import without_gpu

from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Trajectory
from rollyard.trainers import advantages
from rollyard.trainers.completions import completions
from rollyard.trainers.sequences import NOT_SAMPLED, rewards
from rollyard.trainers.trl.async_grpo import AsyncRollouts, async_grpo_trainer, samples_of
from tests.trainers.sampled import GROUP_SIZE, RandomGroups
from tests.trainers.test_trl import GROUPS, ROWS, Losses, Seen, run_on

TEMPERATURE = 0.7
PROMPT = [7, 77, 17, 71, 177]


class SharedPrompts(RandomGroups):
    """All responses are to one prompt, which TRL computes once."""

    def _trajectory(self, seeded: random.Random) -> Trajectory:
        drawn = super()._trajectory(seeded)
        shared = array("i", PROMPT) + drawn.token_ids[len(PROMPT) :]
        return msgspec.structs.replace(drawn, token_ids=shared)


def config(directory: Path, **changes: Any) -> AsyncGRPOConfig:
    given = {
        "max_steps": ROWS // GROUPS,
        "per_device_train_batch_size": GROUPS * GROUP_SIZE,
        "num_generations": GROUP_SIZE,
        "temperature": TEMPERATURE,
        "token_budget": 0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "learning_rate": 1e-3,
        "save_strategy": "steps",
        "save_steps": 1,
        "logging_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        **changes,
    }
    return AsyncGRPOConfig(output_dir=str(directory / "output"), **given)


def trainer_on(
    run: Seen,
    directory: Path,
    policy_dir: Path,
    losses: Losses | None = None,
    lora: LoraConfig | None = None,
    **changes: Any,
) -> tuple[AsyncRollouts, Any]:
    settings = config(directory, **changes)
    rollouts = AsyncRollouts(run, directory / "published")
    base = async_grpo_trainer()
    plain = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)

    class Watched(base):  # type: ignore[misc, valid-type]
        def compute_loss(self, model: Any, *given: Any, **named: Any) -> torch.Tensor:
            loss: torch.Tensor = super().compute_loss(model, *given, **named)
            if losses is not None:
                plain.load_state_dict(model.state_dict())
                losses.theirs.append(loss.item())
                losses.ours.append(plain_loss(plain, run.returned[-1]))
            return loss

    with without_gpu():
        trainer = Watched(
            model=str(policy_dir),
            args=settings,
            peft_config=lora,
            **rollouts.arguments(settings),
        )
    return rollouts, trainer


def plain_loss(model: Any, batch: Batch) -> float:
    """The example's, with TRL's advantages: 1e-8 is added to the deviation."""
    tensors = to_tensors(batch, pad_token_id=0)
    found = advantages.grpo(*rewards(batch), epsilon=1e-8)
    tensors = dataclasses.replace(tensors, advantages=torch.from_numpy(found).float())
    with torch.no_grad():
        logprobs = taken_logprobs(model, tensors.token_ids, temperature=TEMPERATURE)
    return dapo_loss(logprobs, tensors).item()


@pytest.fixture
def orchestrator() -> RandomGroups:
    return RandomGroups()


@pytest.mark.parametrize("kind", [RandomGroups, SharedPrompts])
def test_its_loss_on_a_batch_is_the_plain_loops(
    kind: type[RandomGroups], tmp_path: Path, policy_dir: Path
) -> None:
    losses = Losses()
    rollouts, trainer = trainer_on(run_on(kind()), tmp_path, policy_dir, losses)
    rollouts.train(trainer)
    assert len(losses.theirs) == ROWS // GROUPS
    assert losses.theirs == pytest.approx(losses.ours, abs=1e-5)
    assert max(map(abs, losses.theirs)) > 1e-2


def test_the_weights_are_published_once_a_batch_is_trained_on(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path
) -> None:
    """In four steps of two micro-batches each."""
    run = run_on(orchestrator)
    rollouts, trainer = trainer_on(
        run,
        tmp_path,
        policy_dir,
        max_steps=24,
        weight_sync_steps=4,
        save_steps=4,
        gradient_accumulation_steps=2,
        per_device_train_batch_size=GROUPS * GROUP_SIZE // 8,
    )
    rollouts.train(trainer)
    assert trainer.state.global_step == 24
    groups = [group for batch in run.returned for group in batch.groups]
    assert [group.prompt.instance["row"] for group in groups] == list(range(ROWS))
    assert not orchestrator.delivered
    assert orchestrator.served == 1 + ROWS // GROUPS
    published = AutoModelForCausalLM.from_pretrained(orchestrator.checkpoints[-1])
    trained = dict(trainer.model.named_parameters())
    for name, weights in published.named_parameters():
        assert torch.equal(weights, trained[name]), name


def test_with_a_bound_of_0_each_batch_is_sampled_by_the_weights_that_it_updates(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path
) -> None:
    run = run_on(orchestrator, max_staleness=0)
    rollouts, trainer = trainer_on(run, tmp_path, policy_dir, max_staleness=0)
    rollouts.train(trainer)
    versions = [
        {v for row in completions(each) for v in row.weight_versions} for each in run.returned
    ]
    assert [max(each) for each in versions] == list(range(1, 1 + ROWS // GROUPS))
    assert all(len(each - {NOT_SAMPLED}) == 1 for each in versions)


def test_an_adapter_of_peft_is_merged_into_what_is_published(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path
) -> None:
    lora = LoraConfig(r=4, target_modules=["q_proj", "o_proj"], init_lora_weights=False)
    rollouts, trainer = trainer_on(run_on(orchestrator), tmp_path, policy_dir, lora=lora)
    rollouts.train(trainer)
    published = AutoModelForCausalLM.from_pretrained(orchestrator.checkpoints[-1]).state_dict()
    for name, weights in trainer.model.merge_and_unload().state_dict().items():
        assert torch.allclose(published[name], weights, atol=1e-6), name


def test_a_training_that_has_ended_asks_for_no_batch_when_it_is_started_again(
    orchestrator: RandomGroups, tmp_path: Path, policy_dir: Path
) -> None:
    first = run_on(orchestrator)
    rollouts, trainer = trainer_on(first, tmp_path, policy_dir)
    rollouts.train(trainer)
    first.close()
    again = run_on(orchestrator)
    rollouts, trainer = trainer_on(again, tmp_path, policy_dir)
    rollouts.train(trainer)
    assert again.returned == []
    assert trainer.state.global_step == ROWS // GROUPS


def test_a_sample_is_as_old_as_its_oldest_token(orchestrator: RandomGroups) -> None:
    run = run_on(orchestrator)
    orchestrator.served = orchestrator.updates = 3
    batch = run.rollout(GROUPS)
    report = msgspec.structs.replace(batch.report, weight_version=5)
    samples = samples_of(msgspec.structs.replace(batch, report=report), 11, first_group=6)
    assert {sample.model_version for sample in samples} == {11 - 2}
    assert [sample.group_id for sample in samples] == [6] * GROUP_SIZE + [7] * GROUP_SIZE
    for sample, each in zip(samples, completions(batch), strict=True):
        assert sample.input_ids.tolist() == each.prompt_ids + each.completion_ids
        assert sample.completion_mask.sum() == sum(each.mask)
        assert sample.metrics == {"reward": each.reward}


@pytest.mark.parametrize(
    ("settings", "changes", "said"),
    [
        ({"group_size": 8}, {}, r"num_generations=4, and the run has group_size=8"),
        ({}, {"temperature": 1.0}, r"temperature=1.0, and the run samples at 0.7"),
        ({}, {"top_p": 0.9}, r"top_p=0.9, and the run samples at 1.0; give both the same top_p"),
        ({}, {"top_k": 20}, r"top_k=20, but it is Rollyard that samples"),
        ({}, {"max_steps": -1}, "set max_steps"),
        ({}, {"token_budget": None}, "token_budget=0"),
        ({}, {"per_device_train_batch_size": 6}, "6 samples .* no whole groups"),
        ({"max_staleness": 2}, {"max_staleness": 1}, "older than max_staleness=1"),
        ({}, {"weight_sync_steps": 2}, "save_steps=1 ends in the middle .* 2 steps"),
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
