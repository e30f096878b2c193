"""NeMo-RL's `grpo_train` on Batches of Rollyard, through the rollout function that it calls.

    rollouts = Rollouts(client, run, checkpoints)
    rollouts.train(grpo_train, policy, policy_generation, dataloader, ...)

Rollyard takes the rows from the Run's own dataloader, which is made of NeMo-RL's, and which of them
a step is trained on is known when they are sampled. So what NeMo-RL iterates over are placeholders.
Its checkpoints have the feed's state where its dataloader's would be.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rollyard.client import Client
from rollyard.errors import InvalidMessage
from rollyard.messages import Batch
from rollyard.trainers.completions import PromptCompletion, completions
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.nemo_rl import batches
from rollyard.trainers.nemo_rl.config import check
from rollyard.trainers.nemo_rl.rows import RowOf, data_of, row_of
from rollyard.trainers.states import packed, unpacked
from rollyard.trainers.steps import Save, Steps
from rollyard.training_run import TrainingRun

STATE = "train_dataloader.pt"
"""File of a checkpoint with the dataloader's state: NeMo-RL's name."""
KEY = "rollyard"
ROLLOUTS = ("run_multi_turn_rollout", "run_async_multi_turn_rollout")
"""NeMo-RL's rollout functions, of which it calls one."""


class Rollouts:
    """The rollout function of `grpo_train`. `checkpoints` is a directory that all LLM servers can
    read.

    With `save` the weights are published as checkpoints; without it NeMo-RL's refit has put them on
    the LLM servers. `row` makes a row of a datum for validation, as for the Run's dataloader. With
    `clip_around_sampled` the logprobs of those that sampled are the old ones of the loss's ratio;
    NeMo-RL itself takes the policy's own.
    """

    def __init__(
        self,
        client: Client,
        run: TrainingRun,
        checkpoints: Path,
        *,
        save: Save = None,
        row: RowOf = row_of,
        clip_around_sampled: bool = False,
    ) -> None:
        self._client = client
        self._run = run
        self._checkpoints = checkpoints
        self._save = save
        self._row = row
        self._clip_around_sampled = clip_around_sampled
        self._batch: Batch | None = None
        """The last one that was trained on, or is."""
        self._completions: list[PromptCompletion] = []
        """Of that Batch."""
        self._unpublished = True
        """True if the trainer has weights that were never published."""

    def train(self, grpo_train: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """`grpo_train(*given, **named)`, from NeMo-RL's last whole checkpoint if there is one.

        Raises `InvalidMessage` where the Run and NeMo-RL's configuration do not agree, and what
        `TrainingRun.rollout` and `update_weights` do."""
        call = inspect.signature(grpo_train).bind(*given, **named)
        config = call.arguments["master_config"]
        check(
            self._run.settings,
            config,
            refitted=self._save is None,
            clips_around_sampled=self._clip_around_sampled,
        )
        self._begin(config, call.arguments["checkpointer"])
        trainer = sys.modules[grpo_train.__module__]
        call.arguments["wrapped_dataloader"] = Placeholders(self, trainer, config.grpo)
        if self._clip_around_sampled:
            policy = call.arguments["policy"]
            call.arguments["policy"] = PolicyAsSampled(policy, self.old_logprobs)
        with replaced(trainer, self):
            ended = grpo_train(*call.args, **call.kwargs)
        if self._batch is not None:
            if self._save is not None:  # a refit comes with the next rollout
                self._publish()
            self._run.ack(self._batch)
        return ended

    def __call__(
        self, policy_generation: Any, input_batch: Any, tokenizer: Any, *_: Any, **__: Any
    ) -> tuple[Any, dict[str, float]]:
        """The trajectories of a step or of a validation, as NeMo-RL asks for them."""
        trains = input_batch["task_name"][0] == batches.PLACEHOLDER
        batch = self._next() if trains else self._evaluation(input_batch)
        each = completions(batch)
        if trains:
            self._batch, self._completions = batch, each
            self._unpublished = True
        filled = input_batch.copy()
        filled.update(batches.rollout_fields(batch, each, tokenizer, grouped=trains))
        return filled, batches.rollout_metrics(batch, each)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint with the weights that were trained on the last Batch."""
        return self._run.state_dict(() if self._batch is None else (self._batch,))

    def old_logprobs(self, shape: tuple[int, int]) -> Any:
        """Those of the present step, float32 [B, T]."""
        return batches.old_logprobs(self._completions, shape)

    def _begin(self, config: Any, checkpointer: Any) -> None:
        self._checkpointer = checkpointer
        self._samples_of_validation = config.grpo.val_num_generations_per_prompt
        self._steps = Steps(self._run, config.grpo.num_prompts_per_step, self._checkpoints)
        if checkpoint := checkpointer.get_latest_checkpoint_path():
            torch: Any = import_module("torch")
            state = torch.load(Path(checkpoint) / STATE, weights_only=True)
            if KEY not in state:
                raise InvalidMessage(
                    f"the checkpoint {checkpoint} has no state of a run; it is none of a training "
                    "with Rollyard",
                    fix="begin in another directory, with its weights as the model",
                )
            self._steps.load_state_dict(unpacked(state[KEY]))

    def _next(self) -> Batch:
        self._publish()
        self._checkpointer.finalize_pending()  # the Batch before is acknowledged next
        return self._steps.next(exact_for="NeMo-RL")

    def _evaluation(self, data: Any) -> Batch:
        self._publish()
        samples = self._samples_of_validation
        rows = [self._row(datum) for datum in data_of(data)[::samples]]
        return evaluate(self._client, rows, self._run.settings, samples=samples)

    def _publish(self) -> None:
        """NeMo-RL calls for a rollout once its weights are where it samples."""
        if self._batch is not None and self._unpublished:
            self._steps.trained(self._save)
        elif self._unpublished:
            self._steps.begin(self._save)
        self._unpublished = False


class Placeholders:
    """The dataloader that NeMo-RL iterates over. Without end: `max_num_steps` ends the training."""

    def __init__(self, rollouts: Rollouts, trainer: Any, config: Any) -> None:
        self._rollouts = rollouts
        self._batch_type = trainer.BatchedDataDict
        self._groups = config.num_prompts_per_step
        self._steps = config.max_num_steps

    def __len__(self) -> int:
        return int(self._steps)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._batch_type(batches.placeholders(self._groups))

    def state_dict(self) -> dict[str, Any]:
        return {KEY: packed(self._rollouts.state_dict())}


class PolicyAsSampled:
    """A policy of NeMo-RL whose logprobs are those that its tokens were sampled with."""

    def __init__(self, policy: Any, logprobs: Callable[[tuple[int, int]], Any]) -> None:
        self._policy = policy
        self._logprobs = logprobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def get_logprobs(self, data: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return {"logprobs": self._logprobs(tuple(data["input_ids"].shape))}


@contextmanager
def replaced(trainer: Any, rollouts: Rollouts) -> Iterator[None]:
    """`rollouts` in the place of NeMo-RL's own in the module of its trainer."""
    own = {name: getattr(trainer, name) for name in ROLLOUTS}
    try:
        for name in ROLLOUTS:
            setattr(trainer, name, rollouts)
        yield
    finally:
        for name, function in own.items():
            setattr(trainer, name, function)
