"""verl's PPO trainer on Batches of Rollyard, as its agent loop manager (verl 0.9, `sync` mode).

    class Rollouts(verl.Rollouts):
        @classmethod
        def start(cls, config):
            client = rollyard.Client("http://127.0.0.1:8005")
            return client, client.run(rows(), run_id="verl", group_size=8)

    actor_rollout_ref.rollout.agent.agent_loop_manager_class=my_rollouts.Rollouts

Rollyard takes the rows from the Run's own dataloader, and which of them a step is trained on is
known when they are sampled. So the prompts of verl's training files are placeholders: Groups take
their places. `weights` is the other half: in the place of LLM servers, verl's weights go to a
directory. There they wait for the next step, which begins with publishing them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rollyard.client import Client
from rollyard.errors import InvalidMessage
from rollyard.messages import Batch
from rollyard.rows import Row
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.steps import NEW_RUN
from rollyard.trainers.verl.config import check
from rollyard.trainers.verl.fields import StoredSequence, records, tensor
from rollyard.trainers.verl.steps import VerlSteps
from rollyard.training_run import TrainingRun

KEPT = ("data_source", "extra_info", "reward_model")
"""Columns of verl's validation files that it asks for again."""


class Rollouts:
    """It lives in the process of verl's trainer, which calls `create` and `generate_sequences`."""

    def __init__(self, config: Any, client: Client, run: TrainingRun) -> None:
        check(run.settings, config)
        self._config = config
        self._client = client
        self._run = run
        self._steps = VerlSteps(config, run)

    @classmethod
    def create(cls, config: Any, **_: Any) -> Self:
        """verl calls this once its workers are ready."""
        return cls(config, *cls.start(config))

    @classmethod
    def start(cls, config: Any) -> tuple[Client, TrainingRun]:
        """The client and the Run to train with, for verl's `config`. A subclass has this one."""
        raise NotImplementedError

    def row(self, prompt: Mapping[str, Any]) -> Row:
        """What is evaluated for a prompt of verl's validation files."""
        for name in ("data_source", "extra_info"):
            if name not in prompt:
                raise InvalidMessage(
                    f"verl's validation files have no {name}, but {', '.join(sorted(prompt))}",
                    fix="override `row` of Rollouts, which reads them",
                )
        return {**prompt["extra_info"], "data_source": prompt["data_source"]}

    def received(self, batch: Batch, step: int) -> None:
        """A Batch is trained on in verl's `step`. Override it to log `batch.metrics()`."""

    def generate_sequences(self, prompts: Any) -> None:
        """Store what is sampled for these prompts, a TensorDict, in verl's TransferQueue."""
        uids, step = list(prompts["uid"]), int(prompts["global_steps"])
        # `get` of a TensorDict gives what wraps the value.
        if "validate" in prompts.keys() and prompts["validate"]:  # noqa: SIM118
            self._steps.publish_written(step)
            given = rows_of(prompts, len(uids))
            found = self._records(self.evaluated(given), uids, step)
            for record in found:
                own = given[record.prompt]
                record.fields.update((name, own[name]) for name in KEPT if name in own)
            self.put("val", uids, found)
        else:
            self._steps.publish_written(step - 1)
            self.put("train", uids, self._records(self._next(step), uids, step - 1))

    def evaluated(self, prompts: Sequence[Mapping[str, Any]]) -> Batch:
        """What is sampled for prompts of verl's validation files, without a filter."""
        return evaluate(
            self._client,
            [self.row(prompt) for prompt in prompts],
            self._run.settings,
            samples=self._config.actor_rollout_ref.rollout.val_kwargs.n,
        )

    def put(self, partition: str, uids: Sequence[str], found: Sequence[StoredSequence]) -> None:
        """Store the records, and say that all there is of these prompts is stored."""
        import transfer_queue
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        rows = [{name: tensor(each) for name, each in one.fields.items()} for one in found]
        transfer_queue.kv_batch_put(
            keys=[record.key for record in found],
            fields=list_of_dict_to_tensordict(rows),
            tags=[record.tag for record in found],
            partition_id=partition,
        )
        for uid in uids:
            finished = {"status": "finished"}
            transfer_queue.kv_put(key=uid, partition_id=partition, tag=finished)

    def end(self, step: int) -> None:
        """Publish the weights after verl's last `step`, and acknowledge the Batch that they were
        trained on. verl calls nothing at its end: whoever goes on from there does this, too."""
        self._steps.publish_written(step)
        self._steps.end()

    def _next(self, step: int) -> Batch:
        batch = self._steps.next(step, exact_for="verl")
        self.received(batch, step)
        return batch

    def _records(self, batch: Batch, uids: Sequence[str], step: int) -> list[StoredSequence]:
        if len(batch.groups) != len(uids):
            raise InvalidMessage(
                f"verl asks for {len(uids)} prompts, and the batch has {len(batch.groups)} groups",
                fix=f"leave data.gen_batch_size out; {NEW_RUN}",
            )
        return records(batch, uids, step=step, version=self._steps.version)


def rows_of(prompts: Any, count: int) -> list[dict[str, Any]]:
    """The columns of a TensorDict, as a mapping of each row. What it has besides is one value of
    them all."""
    found = {name: prompts[name] for name in prompts.keys()}  # noqa: SIM118
    columns = {
        name: list(values)
        for name, values in found.items()
        if not isinstance(values, str) and hasattr(values, "__len__") and len(values) == count
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
