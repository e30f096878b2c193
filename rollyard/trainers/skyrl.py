"""SkyRL's trainer on Batches of Rollyard, as its generator (skyrl 0.3).

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            self.rollouts = Rollouts(client, run, cfg.trainer, Path("/shared/weights"))
            return self.rollouts

        def get_trainer(self, *given, **named):
            trainer = super().get_trainer(*given, **named)
            trainer.add_callback(self.rollouts.callback())
            return trainer

Rollyard takes the rows from the Run's own dataloader, and which of them a step is trained on is
known when they are sampled. So SkyRL's training prompts are placeholders: Groups take their places,
in the order of Groups and members.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollyard.client import Client
from rollyard.errors import Conflict, InvalidMessage
from rollyard.messages import Batch, RunSettings, Unit
from rollyard.rows import Row
from rollyard.trainers.completions import completions
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.numbered_steps import NumberedSteps
from rollyard.trainers.steps import NEW_RUN
from rollyard.training_run import TrainingRun

Output = dict[str, Any]
"""SkyRL's GeneratorOutput, which is a dictionary."""


class Rollouts:
    """A GeneratorInterface. `trainer` is SkyRL's configuration of that name; `directory` is one
    that all LLM servers can read."""

    def __init__(self, client: Client, run: TrainingRun, trainer: Any, directory: Path) -> None:
        check(run.settings, trainer)
        self._client = client
        self._run = run
        self._kept = trainer.ckpt_path
        self._steps = NumberedSteps(run, trainer.train_batch_size, directory, self.is_kept)

    async def generate(self, input_batch: Mapping[str, Any], **_: Any) -> Output:
        """What is sampled for SkyRL's prompts."""
        metadata = input_batch["batch_metadata"]
        if metadata.training_phase == "train":
            if not self._steps.version:
                raise Conflict(
                    "no weights of SkyRL's are published",
                    fix="get_trainer: trainer.add_callback(rollouts.callback())",
                )
            batch = await asyncio.to_thread(self._steps.next, metadata.global_step, "SkyRL")
        else:
            batch = await asyncio.to_thread(self.evaluated, input_batch)
        return generator_output(batch, input_batch["trajectory_ids"])

    def evaluated(self, input_batch: Mapping[str, Any]) -> Batch:
        """What is sampled for prompts of SkyRL's evaluation, without a filter."""
        identities = input_batch["trajectory_ids"]
        first = [n for n, each in enumerate(identities) if each.repetition_id == 0]
        return evaluate(
            self._client,
            [self.row(input_batch["env_extras"][number]) for number in first],
            self._run.settings,
            samples=len(identities) // len(first),
        )

    def row(self, extras: Mapping[str, Any]) -> Row:
        """What is evaluated for a prompt: all columns that SkyRL itself does not read."""
        return dict(extras)

    def is_kept(self, step: int) -> bool:
        """Whether SkyRL keeps a checkpoint of this step; of those in the cloud it may keep any."""
        return "://" in self._kept or (Path(self._kept) / f"global_step_{step}").exists()

    def publish(self, trainer: Any, step: int) -> None:
        """Publish the weights that SkyRL's `trainer` has after `step`."""

        def save(path: Path) -> None:
            trainer.dispatch.save_hf_model("policy", str(path), trainer.tokenizer)

        self._steps.publish(step, save)

    def end(self) -> None:
        self._steps.end()

    def callback(self) -> Any:
        """The TrainingCallback that publishes the weights of each step."""
        from skyrl.train.utils.callbacks import TrainingCallback

        rollouts = self

        class SkyRLCallback(TrainingCallback):  # type: ignore[misc]
            def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None:
                rollouts.publish(trainer, trainer.global_step)

            def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
                rollouts.publish(trainer, trainer.global_step)

            def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
                rollouts.end()

        return SkyRLCallback()


def check(settings: RunSettings, trainer: Any) -> None:
    """Raise `InvalidMessage` where the Run's settings and SkyRL's do not agree."""
    if settings.unit is not Unit.GROUPS:
        raise InvalidMessage("SkyRL takes groups", fix="client.run(..., unit='groups')")
    temperature = trainer.algorithm.temperature
    if temperature not in (None, settings.sampling.temperature):
        raise InvalidMessage(
            f"SkyRL divides its logits by trainer.algorithm.temperature={temperature}, and the run "
            f"samples at {settings.sampling.temperature}",
            fix="give both, and generator.sampling_params, the same temperature",
        )


def generator_output(batch: Batch, identities: list[Any]) -> Output:
    """The Batch under SkyRL's names, one sequence a trajectory. `identities` are the TrajectoryIDs
    of its input, in whose order SkyRL takes it."""
    found = completions(batch)
    prompts = sum(each.repetition_id == 0 for each in identities)
    if (len(batch.groups), len(found)) != (prompts, len(identities)):
        raise InvalidMessage(
            f"SkyRL asks for {len(identities)} trajectories of {prompts} prompts, and the batch "
            f"has {len(found)} of {len(batch.groups)}",
            fix="give generator.n_samples_per_prompt and group_size the same number; " + NEW_RUN,
        )
    return {
        "prompt_token_ids": [each.prompt_ids for each in found],
        "response_ids": [each.completion_ids for each in found],
        "rewards": [each.reward for each in found],
        "loss_masks": [each.mask for each in found],
        "rollout_logprobs": [each.logprobs for each in found],
        "stop_reasons": ["length" if each.truncated else "stop" for each in found],
        "trajectory_ids": identities,
        "rollout_metrics": batch.metrics(),
        "is_last_step": None,
    }
