"""SkyRL 0.3.0 itself: what its trainer makes of a generator's output, its advantages and its loss
on our Batches. Its workers need a GPU."""

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typing_extensions
from dapo import dapo_loss, taken_logprobs, to_tensors
from transformers import AutoModelForCausalLM, AutoTokenizer

from rollyard.client import Client
from rollyard.messages import Batch
from rollyard.trainers import advantages
from rollyard.trainers.sequences import rewards
from rollyard.trainers.skyrl import Rollouts, generator_output
from rollyard.training_run import TrainingRun
from tests.real_trainers.conftest import GROUPS
from tests.trainers.sampled import GROUP_SIZE

pytestmark = pytest.mark.timeout(300)
TEMPERATURE = 0.7


@pytest.fixture(scope="module", autouse=True)
def typed_dict() -> None:
    """Pydantic takes the TypedDicts of SkyRL on Python 3.12, and these on 3.11."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typing.TypedDict", typing_extensions.TypedDict)
        import skyrl.train.trainer  # noqa: F401


def identities() -> list[Any]:
    from skyrl.train.generators.base import TrajectoryID

    return [TrajectoryID(f"uid{n}", member) for n in range(GROUPS) for member in range(GROUP_SIZE)]


def trainer_of(policy_dir: Path) -> Any:
    """SkyRL's trainer without its workers."""
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.trainer import RayPPOTrainer

    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg = SkyRLTrainConfig()
    trainer.cfg.trainer.train_batch_size = trainer.cfg.trainer.policy_mini_batch_size = GROUPS
    trainer.cfg.trainer.critic.model.path = None
    trainer.cfg.generator.n_samples_per_prompt = GROUP_SIZE
    trainer.cfg.trainer.algorithm.temperature = TEMPERATURE
    trainer.cfg.trainer.algorithm.eps_clip_low = 0.2
    trainer.cfg.trainer.algorithm.eps_clip_high = 0.28
    trainer.tokenizer = AutoTokenizer.from_pretrained(policy_dir)
    trainer.all_metrics, trainer.all_timings = {}, {}
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    return trainer


def test_its_loss_on_a_generators_output_is_the_plain_loops(
    policy_dir: Path, client: Client, run: TrainingRun, tmp_path: Path
) -> None:
    from skyrl.train.generators.base import BatchMetadata, GeneratorInput

    trainer = trainer_of(policy_dir)
    trainer.cfg.trainer.ckpt_path = str(tmp_path / "output")
    rollouts = Rollouts(client, run, trainer.cfg.trainer, tmp_path / "weights")
    trainer.generator = rollouts
    trainer.dispatch.save_hf_model = lambda *_: None
    rollouts.publish(trainer, 0)
    given = GeneratorInput(
        prompts=[[]] * (GROUPS * GROUP_SIZE),
        env_classes=[],
        env_extras=None,
        sampling_params=None,
        trajectory_ids=identities(),
        batch_metadata=BatchMetadata(global_step=1, training_phase="train"),
    )
    taken: list[Batch] = []
    rollout = run.rollout
    run.rollout = lambda *given, **named: taken.append(rollout(*given, **named)) or taken[-1]  # type: ignore[method-assign, func-returns-value]
    output = asyncio.run(trainer.generate(given))
    assert "batch/reward" in trainer.all_metrics
    uids = [each.instance_id for each in output["trajectory_ids"]]
    output, uids = trainer.postprocess_generator_output(output, uids)
    loss = skyrls_loss(trainer, trainer.convert_to_training_input(output, uids), policy_dir)
    assert loss == pytest.approx(plain_loss(taken[0], policy_dir), abs=1e-5)
    assert abs(loss) > 1e-3


def skyrls_loss(trainer: Any, data: Any, policy_dir: Path) -> float:
    from skyrl.backends.skyrl_train.utils import ppo_utils

    found, _ = ppo_utils.compute_grpo_outcome_advantage(
        token_level_rewards=data["rewards"],
        response_mask=data["response_mask"],
        index=data.metadata["uids"],
    )
    scaled = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
        found, data["loss_mask"], "token_mean", len(found), max_seq_len=1
    )
    policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)
    width = data["loss_mask"].shape[1]
    mask = data["attention_mask"]
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = policy(data["sequences"], attention_mask=mask, position_ids=positions).logits
    taken = (logits[:, -width - 1 : -1] / TEMPERATURE).log_softmax(-1)
    loss, _ = ppo_utils.ppo_policy_loss(
        taken.gather(-1, data["sequences"][:, -width:, None])[..., 0],
        data["rollout_logprobs"],
        scaled,
        trainer.cfg.trainer.algorithm,
        loss_mask=data["loss_mask"],
    )
    return float(loss)


def plain_loss(batch: Batch, policy_dir: Path) -> float:
    """The example's, with SkyRL's advantages: its deviation is of a sample, plus 1e-6."""
    tensors = to_tensors(batch, pad_token_id=0)
    found = advantages.grpo(*rewards(batch), correction=1, epsilon=1e-6)
    tensors = dataclasses.replace(tensors, advantages=torch.from_numpy(found).float())
    policy = AutoModelForCausalLM.from_pretrained(policy_dir, dtype=torch.float32)
    with torch.no_grad():
        return dapo_loss(
            taken_logprobs(policy, tensors.token_ids, temperature=TEMPERATURE), tensors
        ).item()


def test_an_output_holds_against_its_validation(batch: Batch) -> None:
    from skyrl.train.utils.trainer_utils import validate_generator_output

    validate_generator_output(GROUPS * GROUP_SIZE, generator_output(batch, identities()))


def test_a_callback_publishes_each_steps_weights_and_acknowledges_the_last_batch(
    policy_dir: Path, client: Client, run: TrainingRun, tmp_path: Path, orchestrator: Any
) -> None:
    from skyrl.train.utils.callbacks import CallbackHandler, TrainingControl

    trainer = trainer_of(policy_dir)
    trainer.cfg.trainer.ckpt_path = str(tmp_path / "output")
    rollouts = Rollouts(client, run, trainer.cfg.trainer, tmp_path / "weights")
    saved: list[str] = []
    trainer.dispatch.save_hf_model = lambda model, path, tokenizer: saved.append(path)
    trainer._callback_handler = CallbackHandler([])
    trainer.add_callback(rollouts.callback())
    trainer._build_callback_input = lambda **_: None
    trainer._training_control = TrainingControl()
    trainer.global_step = 0
    trainer._fire("on_train_start")
    trainer.global_step = 1
    asyncio.run(
        rollouts.generate(
            {
                "batch_metadata": SimpleNamespace(global_step=1, training_phase="train"),
                "trajectory_ids": identities(),
            }
        )
    )
    trainer._fire("on_step_end")
    assert [Path(path) for path in saved] == orchestrator.checkpoints
    assert len(saved) == 2
    delivered = set(orchestrator.delivered)
    trainer._fire("on_train_end")
    assert len(delivered - set(orchestrator.delivered)) == 1
