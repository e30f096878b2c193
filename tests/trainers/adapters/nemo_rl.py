"""NeMo-RL's GRPO, whose loop is a stand-in: the rows are those that its policy trains on."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoTokenizer

from rollyard.rows import Row
from rollyard.trainers.nemo_rl import Rollouts
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, Start, TrainedRow
from tests.trainers.evaluated import mean_reward
from tests.trainers.nemo_rl_loop import Checkpoints, grpo_train


class Policy:
    """Its weights are what they were trained on: the sum of each step's token ids."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.sums: list[float] = []
        self.rewards: list[list[float]] = []
        """Of each validation."""

    def validated(self, rewards: list[float], length: float) -> None:
        assert length > 0
        self.rewards.append(rewards)

    def train(self, data: dict[str, Any], step: int) -> None:
        self._start.stepped(step, trained_rows(data))
        self.sums.append(float(data["input_ids"].sum()))

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums}

    def save(self, path: Path) -> None:
        (path / "weights.txt").write_text(str(self.sums))


class NemoRlTrainer:
    def __init__(
        self, start: Start, validation: Any = None, *, samples: int = 1, **changes: Any
    ) -> None:
        """Validates after each step, on batches of data; `changes` are of `grpo`."""
        self._start = start
        self._validation = validation
        self._config = config(start.steps, val_num_generations_per_prompt=samples, **changes)
        self._policy = Policy(start)
        self._checkpoints = Checkpoints(start.directory / "checkpoints")
        if last := self._checkpoints.get_latest_checkpoint_path():
            self._policy.sums = torch.load(Path(last) / "weights.pt")["sums"]

    def train(self) -> None:
        rollouts = Rollouts(
            self._start.client,
            self._start.run,
            self._start.directory / "published",
            save=self._policy.save,
            clip_around_sampled=True,
        )
        rollouts.train(
            grpo_train,
            self._policy,
            None,
            [],
            self._validation,
            AutoTokenizer.from_pretrained(self._start.policy_dir),
            self._checkpoints,
            len(self._policy.sums),
            master_config=self._config,
        )

    def evaluate(self, rows: Sequence[Row]) -> float:
        return mean_reward(self._start, rows)

    def weights(self) -> list[float]:
        return self._policy.sums

    def validated(self) -> list[list[float]]:
        """Rewards of each validation."""
        return self._policy.rewards


def config(steps: int, **changes: Any) -> SimpleNamespace:
    """The part of NeMo-RL's MasterConfig that the adapter reads."""
    grpo = {
        "num_prompts_per_step": GROUPS,
        "num_generations_per_prompt": GROUP_SIZE,
        "val_num_generations_per_prompt": 1,
        "max_num_steps": steps,
        "use_dynamic_sampling": False,
        "async_grpo": None,
        **changes,
    }
    return SimpleNamespace(
        grpo=SimpleNamespace(**grpo),
        loss_fn=SimpleNamespace(use_importance_sampling_correction=False),
        policy={"generation": {"temperature": TEMPERATURE, "top_p": 1.0}},
        data={},
        env={},
        data_plane=None,
    )


def trained_rows(data: dict[str, Any]) -> list[TrainedRow]:
    rows = []
    for number, length in enumerate(data["input_lengths"].tolist()):
        names = ("input_ids", "token_mask", "prev_logprobs", "weight_versions")
        token_ids, mask, logprobs, versions = (data[name][number, :length] for name in names)
        assert logprobs.equal(data["generation_logprobs"][number, :length])
        rows.append(
            TrainedRow(
                token_ids=token_ids.tolist(),
                loss_mask=(mask * data["sample_mask"][number]).bool().tolist(),
                logprobs=logprobs.tolist(),
                weight_versions=versions.tolist(),
                reward=data["rewards"][number].item(),
                advantage=data["advantages"][number, 0].item(),
            )
        )
    return rows


ADAPTER = Adapter(
    name="nemo_rl",
    trainer=NemoRlTrainer,
    without=frozenset({"group"}),
    last_sequence_alone=True,
    in_a_process=True,
)
