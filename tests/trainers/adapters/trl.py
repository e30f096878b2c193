"""TRL's GRPOTrainer. The rows are those that its loss is given."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from rollyard.rows import Row
from rollyard.trainers.trl import Rollouts, grpo_trainer
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, Start, TrainedRow


class TrlTrainer:
    def __init__(self, start: Start) -> None:
        self._rollouts = Rollouts(start.client, start.run, start.directory / "published")
        settings = config(start)
        base = grpo_trainer()

        class Watched(base):  # type: ignore[misc, valid-type]
            def _compute_loss(self, model: Any, inputs: Any) -> Any:
                if model.training:
                    start.stepped(self.state.global_step, trained_rows(inputs))
                return super()._compute_loss(model, inputs)

        self._trainer = Watched(
            model=AutoModelForCausalLM.from_pretrained(start.policy_dir, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(start.policy_dir),
            args=settings,
            **self._rollouts.arguments(settings),
        )

    def train(self) -> None:
        self._rollouts.train(self._trainer)

    def evaluate(self, rows: Sequence[Row]) -> float:
        found = self._trainer.evaluate(self._rollouts.dataset(rows))
        reward: float = found["eval_reward"]
        return reward

    def weights(self) -> list[float]:
        parameters = self._trainer.model.parameters()
        return [each.double().sum().item() for each in parameters]


def config(start: Start) -> GRPOConfig:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    return GRPOConfig(
        output_dir=str(start.directory / "output"),
        max_steps=start.steps,
        per_device_train_batch_size=GROUPS * GROUP_SIZE // processes,
        num_generations=GROUP_SIZE,
        per_device_eval_batch_size=GROUP_SIZE // processes,
        num_generations_eval=1,
        temperature=TEMPERATURE,
        learning_rate=1e-3,
        save_strategy="steps",
        save_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )


def trained_rows(inputs: Any) -> list[TrainedRow]:
    prompts, completions = inputs["prompt_mask"].bool(), inputs["completion_mask"].bool()
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    rows = []
    for number, advantage in enumerate(inputs["advantages"].tolist()):
        prompt, there = prompts[number], completions[number]
        prompt_ids = inputs["prompt_ids"][number][prompt].tolist()
        none = [0.0] * len(prompt_ids)
        rows.append(
            TrainedRow(
                token_ids=prompt_ids + inputs["completion_ids"][number][there].tolist(),
                loss_mask=[False] * len(prompt_ids) + mask[number][there].bool().tolist(),
                logprobs=none + inputs["old_per_token_logps"][number][there].tolist(),
                advantage=advantage,
            )
        )
    return rows


ADAPTER = Adapter(
    name="trl",
    trainer=TrlTrainer,
    without=frozenset({"weight_versions", "reward", "group"}),
    last_sequence_alone=True,
    in_a_process=True,
)
