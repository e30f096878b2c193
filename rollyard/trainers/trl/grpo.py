"""TRL's GRPOTrainer on Batches of Rollyard, through its `rollout_func` (trl 1.16).

    rollouts = Rollouts(client, run, checkpoints)
    trainer = grpo_trainer()(model=policy, args=config, **rollouts.arguments(config))
    rollouts.train(trainer)

Rollyard takes the rows from the Run's own dataloader, and which of them a step is trained on is
known when they are sampled. So TRL's dataset are placeholders, and the rewards are those of the
Run's environments: a reward function would be given other prompts than those that were answered.

With several processes the main one drives the Run, and the others have None for it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollyard.client import Client
from rollyard.messages import Batch
from rollyard.rows import Row
from rollyard.trainers.completions import completions
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.steps import Steps
from rollyard.trainers.trl.config import check, steps_of_a_batch
from rollyard.trainers.trl.training import ResumableTraining, callback_of, last_checkpoint, shared
from rollyard.training_run import TrainingRun

PLACEHOLDER = "(Rollyard takes the rows from the run's dataloader)"
COLUMNS = {
    "prompt_ids": "prompt_ids",
    "completion_ids": "completion_ids",
    "logprobs": "logprobs",
    "env_mask": "mask",
    "rollyard_reward": "reward",
}
"""What TRL calls the fields of a PromptCompletion."""


class Rollouts(ResumableTraining):
    """The `rollout_func` of a GRPOTrainer. `checkpoints` is a directory that all LLM servers can
    read."""

    def __init__(self, client: Client, run: TrainingRun | None, checkpoints: Path) -> None:
        super().__init__()
        self._client = client
        self._run = run
        self._checkpoints = checkpoints
        self._begun = False
        self._serves = False
        """True once weights of this training are served, whoever was trained before."""
        self._left = 0
        """Optimizer steps until the Batch is trained on."""

    def arguments(self, config: Any) -> dict[str, Any]:
        """What GRPOTrainer is to be given beside `config`, its GRPOConfig.

        Raises `InvalidMessage` where the Run and `config` do not agree."""
        from datasets import Dataset  # TRL brings it along

        groups = config.generation_batch_size // config.num_generations
        if self._run is not None:
            check(self._run.settings, config)
            self._steps = Steps(self._run, groups, self._checkpoints)
        return {
            "train_dataset": Dataset.from_list([{"prompt": PLACEHOLDER}] * groups),
            "reward_funcs": rollyard_reward,
            "rollout_func": self,
            "callbacks": [callback_of(self)],
        }

    def dataset(self, rows: Sequence[Row]) -> Any:
        """The `eval_dataset` of these rows, which JSON must be able to write."""
        from datasets import Dataset

        return Dataset.from_list([{"prompt": json.dumps(row)} for row in rows])

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """The completions of this process, as TRL asks for them."""
        trains = trainer.model.training
        batch = self._batch(trainer) if trains else self._evaluation(prompts, trainer)
        all_completions = shared(trainer, None if batch is None else completions(batch))
        first = trainer.accelerator.process_index * len(prompts)
        mine = all_completions[first : first + len(prompts)]
        return {name: [getattr(each, field) for each in mine] for name, field in COLUMNS.items()}

    def stepped(self) -> None:
        """The optimizer has made a step."""
        self._left -= 1
        if self._left == 0:
            self._publish(self._trainer)

    def is_between_batches(self) -> bool:
        return self._left == 0

    def _batch(self, trainer: Any) -> Batch | None:
        if not self._begun:
            self._publish(trainer)
            self._begun = self._serves = True
        self._trainer, self._left = trainer, steps_of_a_batch(trainer.args)
        if self._steps is None:
            return None
        return self._steps.next(exact_for="TRL")

    def _evaluation(self, prompts: list[str], trainer: Any) -> Batch | None:
        from accelerate.utils import gather_object

        if not self._serves:
            self._serve(trainer)
        samples = trainer.num_generations_eval
        rows = [json.loads(prompt) for prompt in gather_object(prompts)[::samples]]
        if self._run is None:
            return None
        return evaluate(self._client, rows, self._run.settings, samples=samples)

    def _serve(self, trainer: Any) -> None:
        """Publish the weights that are evaluated before the training begins. A training that is to
        go on has published its own."""
        if not shared(trainer, last_checkpoint(Path(trainer.args.output_dir)) is not None):
            self._publish(trainer, begins=False)
        self._serves = True

    def _publish(self, trainer: Any, *, begins: bool = True) -> None:
        """All processes write the weights together, and the main one publishes them."""

        def save(path: Path | None) -> None:
            trainer.save_model(shared(trainer, path and str(path)))

        if self._steps is None:
            save(None)
        elif self._begun:
            self._steps.trained(save)
        elif begins:
            self._steps.begin(save)
        else:
            self._steps.publish(save)


def rollyard_reward(*, rollyard_reward: list[float], **_: Any) -> list[float]:
    """The reward function: that of each completion's trajectory."""
    return rollyard_reward


def grpo_trainer() -> Any:
    """TRL's GRPOTrainer, with the logprobs of those that sampled as the old ones of its ratio.

    TRL itself takes the policy's own, as if the tokens were of the present weights. With
    `max_staleness` 0 they are.
    """
    from trl import GRPOTrainer

    class RollyardGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
            return output

    return RollyardGRPOTrainer
