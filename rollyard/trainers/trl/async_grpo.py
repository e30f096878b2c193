"""TRL's AsyncGRPOTrainer on Batches of Rollyard (trl 1.16), which it calls experimental.

    rollouts = AsyncRollouts(run, checkpoints)
    trainer = async_grpo_trainer()(model=path, args=config, **rollouts.arguments(config))
    rollouts.train(trainer)

TRL's own rollout worker and its transfer of weights over NCCL are replaced by a Run: samples are
those of its Batches, and weights are published by checkpoint, once a Batch is trained on. What is
asynchronous is Rollyard's: the next Batch is sampled meanwhile, as `max_staleness` of the Run
allows.

With several processes the main one drives the Run, and the others have None for it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from rollyard.messages import Batch, Result
from rollyard.trainers.advantages import grpo
from rollyard.trainers.completions import PromptCompletion, completions
from rollyard.trainers.sequences import rewards
from rollyard.trainers.steps import Steps
from rollyard.trainers.trl.config import check_async, samples_of_a_batch
from rollyard.trainers.trl.training import ResumableTraining, callback_of, shared
from rollyard.training_run import TrainingRun

EPSILON = 1e-8
"""Added to the deviation of a Group's rewards, as TRL's own worker does."""


class AsyncRollouts(ResumableTraining):
    """The `rollout_worker` of an AsyncGRPOTrainer, and its `weight_transfer`. `checkpoints` is a
    directory that all LLM servers can read."""

    def __init__(self, run: TrainingRun | None, checkpoints: Path) -> None:
        super().__init__()
        self._run = run
        self._checkpoints = checkpoints
        self.rollout_buffer = Samples(self._samples)
        self.metrics_queue: Queue[dict[str, float]] = Queue()
        self._model_version = 0
        """TRL's own count of updates, since this process began."""
        self._groups = 0
        """Groups of the Batches so far."""

    def arguments(self, config: Any) -> dict[str, Any]:
        """What AsyncGRPOTrainer is to be given beside `config`, its AsyncGRPOConfig.

        Raises `InvalidMessage` where the Run and `config` do not agree."""
        from datasets import Dataset  # TRL brings it along

        groups = samples_of_a_batch(config) // config.num_generations
        if self._run is not None:
            check_async(self._run.settings, config)
            self._steps = Steps(self._run, groups, self._checkpoints)
        return {
            "train_dataset": Dataset.from_list([{"prompt": "(the run's dataloader has the rows)"}]),
            "rollout_worker": self,
            "weight_transfer": self,
            "callbacks": [callback_of(self)],
        }

    def is_between_batches(self) -> bool:
        trainer = self._trainer
        return bool(trainer.state.global_step % trainer.args.weight_sync_steps == 0)

    # What TRL asks of a rollout worker

    def start(self) -> None:
        """The Run samples as soon as a Batch is requested."""

    def stop(self) -> None:
        """The Run is its owner's to leave."""

    def update_model_version(self, model_version: int) -> None:
        self._model_version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """What is wrong is raised where a Batch is waited for."""

    # What TRL asks of a weight transfer

    def init_weight_transfer(self) -> None:
        """There is nothing to open."""

    def pause(self) -> None:
        """The LLM servers are paused while they load a checkpoint, and go on themselves."""

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Publish the weights: those that training begins with, or goes on with, or those that are
        trained on a Batch."""
        assert self._steps is not None  # the main process alone has this to do
        weights = {name: tensor.detach().cpu() for name, tensor in iterator}
        publish = self._steps.trained if self._steps.version else self._steps.begin
        publish(lambda path: self._save(path, weights))

    def resume(self) -> None:
        """They have gone on."""

    def destroy(self) -> None:
        """There is nothing to close."""

    def _save(self, path: Path, weights: dict[str, Any]) -> None:
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        if hasattr(model, "get_base_model"):  # PEFT's, whose adapter TRL has merged into `weights`
            model = model.get_base_model()
        model.save_pretrained(path, state_dict=weights)
        self._trainer.processing_class.save_pretrained(path)

    def _samples(self) -> list[Any]:
        """Those of the next Batch."""
        assert self._steps is not None  # the main process alone waits for samples
        batch = self._steps.next(exact_for="TRL")
        self.metrics_queue.put(batch.metrics())
        samples = samples_of(batch, self._model_version, self._groups)
        self._groups += len(batch.groups)
        return samples


class Samples(Queue[Any]):
    """A queue of samples that takes those of the next Batch when it is empty."""

    def __init__(self, more: Callable[[], list[Any]]) -> None:
        super().__init__()
        self._more = more

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.empty():
            for sample in self._more():
                self.put(sample)
        return super().get(block, timeout)


def samples_of(batch: Batch, model_version: int, first_group: int = 0) -> list[Any]:
    """TRL's RolloutSamples of the Batch. `model_version` is TRL's of the weights that it updates,
    and the Groups are numbered from `first_group`."""
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    teaching = grpo(*rewards(batch), epsilon=EPSILON)
    results = [result for group in batch.groups for result in group.results]
    return [
        RolloutSample(
            prompt=[],  # of what TRL logs it is all beside the completion
            completion=_messages(result),
            input_ids=np.array(each.prompt_ids + each.completion_ids, np.int64),
            completion_mask=np.array([0] * len(each.prompt_ids) + each.mask, np.int64),
            old_log_probs=np.array([0.0] * len(each.prompt_ids) + each.logprobs, np.float32),
            advantage=float(advantage),
            model_version=model_version - _age(each, batch.report.weight_version),
            group_id=first_group + each.group,
            metrics={"reward": each.reward},
        )
        for each, advantage, result in zip(completions(batch), teaching, results, strict=True)
    ]


def _age(completion: PromptCompletion, updates: int) -> int:
    """By how many versions its oldest token lies behind the weights that are updated."""
    sampled = zip(completion.weight_versions, completion.mask, strict=True)
    return updates - min((version for version, mask in sampled if mask), default=updates)


def _messages(result: Result) -> list[dict[str, str]]:
    said = result.trajectory.messages if result.trajectory else ()
    return [{"role": message.role, "content": message.content} for message in said]


def async_grpo_trainer() -> Any:
    """TRL's AsyncGRPOTrainer, which asks for samples when it trains on them, and not one
    micro-batch earlier: the first of a Batch would be asked for before the last is trained on."""
    from trl.experimental.async_grpo import AsyncGRPOTrainer

    class RollyardAsyncGRPOTrainer(AsyncGRPOTrainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return MicroBatches(self, super().get_train_dataloader().base_dataloader)

    return RollyardAsyncGRPOTrainer


class MicroBatches:
    """TRL's micro-batches as they come, from the main process, until `max_steps`: a training that
    has ended, and is started again, asks for none. Each process has its row."""

    def __init__(self, trainer: Any, loader: Any) -> None:
        self._trainer = trainer
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rank = self._trainer.accelerator.process_index
        batches = iter(self.loader)
        while self._trainer.state.global_step < self._trainer.args.max_steps:
            batch = shared(self._trainer, next(batches) if rank == 0 else None)
            yield {name: tensor[rank : rank + 1] for name, tensor in batch.items()}
