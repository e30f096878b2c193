"""`grpo_train` on this machine: NeMo-RL's own loop, dataloader, loss and checkpoints.

What it needs of a cluster is stood in for: its policy is a model in this process, its LLM servers
are a copy of the weights, and it does not ask Ray for its memory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dapo import taken_logprobs
from nemo_rl.algorithms import grpo
from nemo_rl.algorithms.loss import ClippedPGLossConfig, ClippedPGLossFn
from nemo_rl.algorithms.utils import set_seed
from nemo_rl.data.collate_fn import rl_collate_fn
from nemo_rl.data.utils import load_dataloader_state
from nemo_rl.utils.checkpoint import CheckpointManager
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from rollyard.trainers.nemo_rl import Rollouts

GROUPS, GROUP_SIZE, STEPS = 2, 4, 6
TEMPERATURE = 0.7
LEARNING_RATE = 1e-5
SIZES = {
    "num_prompts_per_step": GROUPS,
    "num_generations_per_prompt": GROUP_SIZE,
    "val_period": 0,
    "val_batch_size": 2,
    "max_val_samples": 4,
}
DATA = {"use_multiple_dataloader": False, "train": {"dataset_name": "rows"}}


class MemoryTracker:
    def snapshot_start_of_stage(self, *_: Any) -> None:
        pass


grpo.MemoryTracker = MemoryTracker


class Logger:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, int], dict[str, Any]] = {}

    def log_metrics(self, metrics: dict[str, Any], step: int, prefix: str = "", **_: Any) -> None:
        self.metrics.setdefault((prefix, step), {}).update(metrics)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Generation:
    """NeMo-RL's LLM servers: `served` are the weights that a refit put there."""

    requires_kv_scale_sync = False
    is_stale = True

    def __init__(self, policy: "Policy") -> None:
        self._policy = policy
        self.weight_synchronizer = self
        self.served: list[torch.Tensor] = []

    def sync_weights(self, **_: Any) -> dict[str, float]:
        self.served = [each.detach().clone() for each in self._policy.model.parameters()]
        return {}

    def get_logger_metrics(self) -> dict[str, Any]:
        return {}

    def prepare_for_generation(self, *_: Any, **__: Any) -> None:
        pass

    finish_generation = clear_logger_metrics = prepare_for_generation


class Policy:
    """NeMo-RL's policy, as a model in this process. `trained` is called with the data of each step,
    before the optimizer's."""

    def __init__(
        self, directory: Path, config: dict[str, Any], trained: Callable[["Policy", Any], None]
    ) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["learning_rate"])
        self._temperature = config["generation"]["temperature"]
        self._trained = trained
        self.loss = 0.0

    def load_checkpoint(self, weights_path: Path, optimizer_path: Path) -> None:
        self.model.load_state_dict(torch.load(weights_path))
        self._optimizer.load_state_dict(torch.load(optimizer_path))

    def save_checkpoint(self, weights_path: str, optimizer_path: str, **_: Any) -> None:
        Path(weights_path).parent.mkdir(parents=True)
        torch.save(self.model.state_dict(), weights_path)
        torch.save(self._optimizer.state_dict(), optimizer_path)

    def get_logprobs(self, data: Any, **_: Any) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return {"logprobs": self._logprobs(data)}

    def train(self, data: Any, loss_fn: Any, **_: Any) -> dict[str, Any]:
        valid = data["token_mask"] * data["sample_mask"][:, None]
        self._optimizer.zero_grad()
        loss, metrics = loss_fn(
            self._logprobs(data)[:, 1:],
            data,
            global_valid_seqs=data["sample_mask"].sum(),
            global_valid_toks=valid[:, 1:].sum(),
        )
        loss.backward()
        self.loss = loss.item()
        self._trained(self, data)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), float("inf"))
        self._optimizer.step()
        metrics |= {"global_valid_toks": valid[:, 1:].sum().item()}
        return {
            "loss": loss.detach(),
            "grad_norm": norm.detach(),
            "all_mb_metrics": {name: [value] for name, value in metrics.items()},
        }

    def prepare_for_training(self, *_: Any, **__: Any) -> None:
        pass

    prepare_for_lp_inference = offload_after_refit = finalize_async_save = prepare_for_training

    def _logprobs(self, data: Any) -> torch.Tensor:
        return taken_logprobs(self.model, data["input_ids"], temperature=self._temperature)


def config(
    directory: Path, *, steps: int = STEPS, loss: dict[str, Any] | None = None, **changes: Any
) -> grpo.MasterConfig:
    """`loss` and `changes` are of the sections `loss_fn` and `grpo`."""
    loss = {"ratio_clip_max": 0.28, "reference_policy_kl_penalty": 0.0, **(loss or {})}
    generation = {
        "temperature": TEMPERATURE,
        "top_p": 1.0,
        "backend": "vllm",
        "colocated": {"enabled": True},
        "vllm_cfg": {"async_engine": True},
    }
    return grpo.MasterConfig.model_construct(
        grpo=grpo.GRPOConfig(
            max_num_steps=steps,
            adv_estimator=grpo.AdvEstimatorConfig(use_leave_one_out_baseline=False),
            skip_reference_policy_logprobs_calculation=True,
            **{**SIZES, **changes},
        ),
        loss_fn=ClippedPGLossConfig(**loss),
        policy={
            "precision": "float32",
            "learning_rate": LEARNING_RATE,
            "make_sequence_length_divisible_by": 8,
            "max_total_sequence_length": 64,
            "generation": generation,
        },
        data=DATA,
        env={},
        data_plane=None,
        logger={"num_val_samples_to_print": 0, "wandb_enabled": False},
        cluster={"num_nodes": 1, "gpus_per_node": 1},
        checkpointing={
            "enabled": True,
            "checkpoint_dir": str(directory / "checkpoints"),
            "checkpoint_must_save_by": None,
            "metric_name": None,
            "higher_is_better": True,
            "keep_top_k": None,
            "save_period": 1,
            "save_optimizer": True,
        },
    )


def loader(
    rows: list[dict[str, Any]],
    batch_size: int,
    checkpoint: str | None = None,
    *,
    shuffle: bool = False,
) -> Any:
    """The dataloader as NeMo-RL's `setup` makes it of a dataset."""
    tokens = torch.tensor([1])
    data = [
        {
            "message_log": [{"role": "user", "content": "?", "token_ids": tokens}],
            "length": len(tokens),
            "extra_env_info": row,
            "loss_multiplier": 1.0,
            "idx": number,
            "task_name": "x",
        }
        for number, row in enumerate(rows)
    ]
    made = StatefulDataLoader(
        data, batch_size=batch_size, shuffle=shuffle, collate_fn=rl_collate_fn, drop_last=True
    )
    if checkpoint is not None:
        load_dataloader_state(made, checkpoint, DATA)
    return made


class Training:
    """One process of a trainer, set up as NeMo-RL's `examples/run_grpo.py` does."""

    def __init__(
        self,
        master_config: grpo.MasterConfig,
        policy_dir: Path,
        rows: list[dict[str, Any]],
        trained: Callable[[Policy, Any], None],
        validation: list[dict[str, Any]] | None = None,
    ) -> None:
        self.config = master_config
        self.checkpointer = CheckpointManager(master_config.checkpointing)
        self.checkpoint = self.checkpointer.get_latest_checkpoint_path()
        self.tokenizer = AutoTokenizer.from_pretrained(policy_dir)
        set_seed(master_config.grpo.seed)
        sizes = master_config.grpo
        self.dataloader = loader(rows, sizes.num_prompts_per_step, self.checkpoint, shuffle=True)
        self.validation = validation and loader(validation, sizes.val_batch_size)
        self.policy = Policy(policy_dir, master_config.policy, trained)
        self.generation = Generation(self.policy)
        self.logger = Logger()
        info = None
        if self.checkpoint is not None:
            self.policy.load_checkpoint(*self.checkpointer.get_resume_paths(self.checkpoint))
            info = self.checkpointer.load_training_info(self.checkpoint)
        self.state = grpo._get_grpo_save_state(info)

    def train(self, rollouts: Rollouts) -> None:
        rollouts.train(
            grpo.grpo_train,
            self.policy,
            self.generation,
            self.dataloader,
            self.validation,
            self.tokenizer,
            ClippedPGLossFn(self.config.loss_fn),
            {},
            {},
            self.logger,
            self.checkpointer,
            self.state,
            self.config,
        )
