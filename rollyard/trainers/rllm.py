"""rLLM's trainer on Batches of Rollyard, as its verl backend (its main branch of August 2026).

    verl.register()  # in the module that actor_rollout_ref.model.external_lib names
    backend_cls = backend(start)  # for UnifiedTrainer, in the place of VerlBackend

A Batch is episodes, whose steps are its turns; rLLM itself makes one row of steps that extend each
other. Its tasks are placeholders: Groups take their places. The weights are verl's, which
`verl.weights` writes to a directory.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rollyard.client import Client
from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Result
from rollyard.messages import Sequence as Tokens
from rollyard.rows import Row
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.verl.config import check_sampling
from rollyard.trainers.verl.steps import VerlSteps
from rollyard.training_run import TrainingRun

Start = Callable[[Any], tuple[Client, TrainingRun]]
"""The client and the Run to train with, for verl's configuration."""


class Rollouts:
    """What is sampled in the place of rLLM's tasks."""

    def __init__(self, config: Any, client: Client, run: TrainingRun) -> None:
        check_sampling(run.settings, config.actor_rollout_ref.rollout)
        self._client = client
        self._run = run
        self._steps = VerlSteps(config, run)

    def next(self, step: int) -> Batch:
        """The Batch that `step` is trained on, once the weights before it are published."""
        self.publish(step - 1)
        return self._steps.next(step, exact_for="rLLM")

    def publish(self, step: int) -> None:
        """Publish the weights after `step`."""
        self._steps.publish_written(step)

    def evaluated(self, rows: Sequence[Row], samples: int) -> Batch:
        return evaluate(self._client, rows, self._run.settings, samples=samples)

    def end(self, step: int) -> None:
        """Publish the weights after the last `step`, and acknowledge its Batch."""
        self.publish(step)
        self._steps.end()


def backend(start: Start) -> Any:
    """rLLM's VerlBackend, whose episodes are sampled by Rollyard."""
    from rllm.trainer.verl.verl_backend import VerlBackend

    class RollyardBackend(VerlBackend):  # type: ignore[misc]
        async def on_train_start(self, trainer_state: Any) -> None:
            await super().on_train_start(trainer_state)
            self.rollouts = Rollouts(self.config, *start(self.config))
            self.ended_steps = self.global_steps

        async def on_batch_end(self, trainer_state: Any) -> None:
            await super().on_batch_end(trainer_state)
            self.ended_steps = self.global_steps

        async def generate_episodes(
            self, batch: Any, agent_workflow_engine: Any, is_validation: bool = False, **_: Any
        ) -> list[Any]:
            sampled = await asyncio.to_thread(self._sampled, batch, is_validation)
            return [episode_of(*each) for each in members(sampled)]

        async def on_train_end(self, trainer_state: Any) -> None:
            # Called after an error in a step, too, which has trained nothing then.
            await asyncio.to_thread(self.rollouts.end, self.ended_steps)
            await super().on_train_end(trainer_state)

        def _sampled(self, tasks: Sequence[Row], is_validation: bool) -> Batch:
            if is_validation:
                self.rollouts.publish(self.global_steps)
                samples = self.full_config.rllm.rollout.n_val
                return self.rollouts.evaluated([row_of(task) for task in tasks], samples)
            found = self.rollouts.next(self.global_steps)
            if len(found.groups) != len(tasks):
                raise InvalidMessage(
                    f"rLLM asks for {len(tasks)} tasks, and the batch has {len(found.groups)}",
                    fix="leave rllm.rejection_sample and rllm.async_training as they are",
                )
            return found

    return RollyardBackend


def row_of(task: Any) -> Row:
    """What is evaluated for a task of rLLM's: a dictionary, or a Task with one."""
    return dict(task if isinstance(task, dict) else task.metadata)


def members(batch: Batch) -> list[tuple[str, Row, Result]]:
    """The id that an episode has, its row, and what was sampled."""
    return [
        (f"{group.group_id.replace(':', '-')}:{member}", group.prompt.instance, result)
        for group in batch.groups
        for member, result in enumerate(group.results)
    ]


def outputs(result: Result) -> list[dict[str, Any]]:
    """rLLM's names for the tokens of each turn. One that sampled nothing has one without any."""
    if result.trajectory is None:
        raise InvalidMessage(f"job {result.lease.job_id} is in a batch without a trajectory")
    found = [
        output(sequence, turn.start, turn.end)
        for sequence in result.trajectory.sequences
        for turn in sequence.turns
    ]
    last = result.trajectory.sequences[-1]
    return found or [output(last, len(last.token_ids), len(last.token_ids))]


def output(sequence: Tokens, start: int, end: int) -> dict[str, Any]:
    sampled = [each for each in sequence.weight_spans if each.start < end and start < each.end]
    return {
        "prompt_ids": sequence.token_ids[:start].tolist(),
        "completion_ids": sequence.token_ids[start:end].tolist(),
        "logprobs": sequence.logprobs[start:end].tolist(),
        "weight_version": min((each.version for each in sampled), default=None),
    }


def episode_of(identity: str, row: Row, result: Result) -> Any:
    """An Episode of one trajectory."""
    from rllm.engine.rollout import ModelOutput
    from rllm.types import Episode, Step, Trajectory
    from rllm.workflows.workflow import TerminationReason

    reward = float(result.reward or 0.0)
    # One row without logprobs, and rLLM drops those of all: a step that sampled nothing has no row.
    steps = [
        Step(model_output=ModelOutput(**each) if each["completion_ids"] else None)
        for each in outputs(result)
    ]
    steps[-1].reward, steps[-1].done = reward, True
    truncated = result.trajectory is not None and result.trajectory.truncated
    ended = TerminationReason.MAX_TURNS_EXCEEDED if truncated else TerminationReason.ENV_DONE
    return Episode(
        id=identity,
        task=row,
        termination_reason=ended,
        is_correct=reward > 0,
        trajectories=[Trajectory(name="agent", task=row, steps=steps, reward=reward)],
        metadata={"data_source": row["data_source"]},
    )
