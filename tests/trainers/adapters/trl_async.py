"""TRL's AsyncGRPOTrainer. The rows are the samples that it packs for its loss."""

import os
from collections.abc import Sequence
from typing import Any

from trl.experimental.async_grpo import AsyncGRPOConfig
from without_gpu import without_gpu

from rollyard.rows import Row
from rollyard.trainers.trl.async_grpo import AsyncRollouts, async_grpo_trainer
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, Start, TrainedRow
from tests.trainers.evaluated import mean_reward


class AsyncTrlTrainer:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._rollouts = AsyncRollouts(start.run, start.directory / "published")
        settings = config(start)
        base = async_grpo_trainer()

        class Watched(base):  # type: ignore[misc, valid-type]
            def get_train_dataloader(self) -> Any:
                batches = super().get_train_dataloader()
                pack = batches.loader.collate_fn

                def packed(examples: list[Any]) -> Any:
                    samples = [sample for row in examples[0] for sample in row.samples]
                    start.stepped(self.state.global_step, trained_rows(samples))
                    return pack(examples)

                batches.loader.collate_fn = packed
                return batches

        with without_gpu():
            self._trainer = Watched(
                model=str(start.policy_dir), args=settings, **self._rollouts.arguments(settings)
            )

    def train(self) -> None:
        self._rollouts.train(self._trainer)

    def evaluate(self, rows: Sequence[Row]) -> float:
        return mean_reward(self._start, rows)

    def weights(self) -> list[float]:
        return [each.double().sum().item() for each in self._trainer.model.parameters()]


def config(start: Start) -> AsyncGRPOConfig:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    return AsyncGRPOConfig(
        output_dir=str(start.directory / "output"),
        max_steps=start.steps,
        per_device_train_batch_size=GROUPS * GROUP_SIZE // processes,
        num_generations=GROUP_SIZE,
        temperature=TEMPERATURE,
        token_budget=0,
        learning_rate=1e-3,
        save_strategy="steps",
        save_steps=1,
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )


def trained_rows(samples: list[dict[str, Any]]) -> list[TrainedRow]:
    return [
        TrainedRow(
            token_ids=sample["input_ids"].tolist(),
            loss_mask=sample["completion_mask"].astype(bool).tolist(),
            logprobs=sample["old_log_probs"].tolist(),
            reward=sample["metrics"]["reward"],
            advantage=sample["advantage"],
            group=sample["group_id"],
        )
        for sample in samples
    ]


ADAPTER = Adapter(
    name="trl_async",
    trainer=AsyncTrlTrainer,
    without=frozenset({"weight_versions"}),
    last_sequence_alone=True,
    in_a_process=True,
)
