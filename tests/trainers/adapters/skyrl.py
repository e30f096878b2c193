"""A loop in the order of SkyRL's own (`RayPPOTrainer.train` of 0.3.0). The rows are those that its
generator returns.

The weights are what they were trained on: the sum of the token ids of each step.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rollyard.rows import Row
from rollyard.trainers.skyrl import Output, Rollouts
from rollyard.trainers.steps import write_whole
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE, Adapter, Start, TrainedRow


@dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int


class SkyrlLoop:
    tokenizer = None

    def __init__(self, start: Start) -> None:
        self._start = start
        self._checkpoints = start.directory / "output"
        self._latest = start.directory / "latest.json"
        """SkyRL's latest_ckpt_global_step.txt."""
        self._weights: list[float] = []
        if self._latest.exists():
            folder = self._checkpoints / f"global_step_{json.loads(self._latest.read_text())}"
            self._weights = json.loads((folder / "weights.json").read_text())
        self._rollouts = Rollouts(
            start.client,
            start.run,
            SimpleNamespace(
                ckpt_path=str(self._checkpoints),
                train_batch_size=GROUPS,
                algorithm=SimpleNamespace(temperature=TEMPERATURE),
            ),
            start.directory / "weights",
        )
        self.dispatch = self

    def train(self) -> None:
        self._rollouts.publish(self, len(self._weights))
        while len(self._weights) < self._start.steps:
            step = len(self._weights) + 1
            output = self._generate("train", step, [{}] * GROUPS, GROUP_SIZE)
            rows = trained_rows(output)
            self._start.stepped(step - 1, rows)
            self._weights.append(float(sum(sum(row.token_ids) for row in rows)))
            self._rollouts.publish(self, step)
            folder = self._checkpoints / f"global_step_{step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "weights.json").write_text(json.dumps(self._weights))
            write_whole(self._latest, step)
        self._rollouts.end()

    def evaluate(self, rows: Sequence[Row]) -> float:
        output = self._generate("eval", 0, rows, 1)
        return float(sum(output["rewards"]) / len(rows))

    def weights(self) -> list[float]:
        return self._weights

    def save_hf_model(self, model: str, directory: str, tokenizer: object) -> None:
        """As `trainer.dispatch` has it."""
        (Path(directory) / "weights.json").write_text(json.dumps(self._weights))

    def _generate(self, phase: str, step: int, extras: Sequence[Row], samples: int) -> Output:
        each = [(number, member) for number in range(len(extras)) for member in range(samples)]
        given: dict[str, Any] = {
            "batch_metadata": SimpleNamespace(global_step=step, training_phase=phase),
            "trajectory_ids": [TrajectoryID(f"{step}-{n}", member) for n, member in each],
            "env_extras": [extras[number] for number, _ in each],
        }
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(InThisThread())
            return runner.run(self._rollouts.generate(given))


class InThisThread(ThreadPoolExecutor):
    """The suite watches calls of one thread."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(call(*given, **named))
        except BaseException as error:  # as an executor hands it on
            future.set_exception(error)
        return future


def trained_rows(output: Output) -> list[TrainedRow]:
    names = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs")
    columns = zip(
        *(output[name] for name in names), output["rewards"], output["trajectory_ids"], strict=True
    )
    return [
        TrainedRow(
            token_ids=prompt + response,
            loss_mask=[False] * len(prompt) + [bool(each) for each in mask],
            logprobs=[0.0] * len(prompt) + logprobs,
            reward=reward,
            group=identity.instance_id,
        )
        for prompt, response, mask, logprobs, reward, identity in columns
    ]


ADAPTER = Adapter(
    name="skyrl",
    trainer=SkyrlLoop,
    without=frozenset({"weight_versions", "advantage"}),
    last_sequence_alone=True,
)
