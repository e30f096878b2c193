"""The loop of docs/trainers.md in plain torch: `steps`, `padding` and `advantages`."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from rollyard.messages import Batch
from rollyard.rows import Row
from rollyard.trainers.advantages import grpo
from rollyard.trainers.padding import PaddedSequences, padded
from rollyard.trainers.sequences import rewards, training_sequences
from rollyard.trainers.steps import Steps
from tests.trainers.contract import GROUPS, TEMPERATURE, Adapter, Start, TrainedRow
from tests.trainers.evaluated import mean_reward


class PlainLoop:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._checkpoint = start.directory / "checkpoint.pt"
        self._steps = Steps(start.run, GROUPS, start.directory / "published")
        self._policy = AutoModelForCausalLM.from_pretrained(start.policy_dir, dtype=torch.float32)
        self._optimizer = torch.optim.SGD(self._policy.parameters(), lr=1e-3)
        self._done = 0
        if self._checkpoint.exists():
            saved = torch.load(self._checkpoint, weights_only=False)
            self._policy.load_state_dict(saved["policy"])
            self._steps.load_state_dict(saved["steps"])
            self._done = saved["done"]

    def train(self) -> None:
        self._steps.begin(self._save)
        while self._done < self._start.steps:
            self._train_on(self._steps.next())
            self._steps.trained(self._save)
            self._done += 1
            self._write_checkpoint()
        self._steps.end()

    def evaluate(self, rows: Sequence[Row]) -> float:
        return mean_reward(self._start, rows)

    def weights(self) -> list[float]:
        return [each.double().sum().item() for each in self._policy.parameters()]

    def _train_on(self, batch: Batch) -> None:
        rows = padded(training_sequences(batch), pad_token_id=0)
        found = grpo(*rewards(batch))[rows.trajectories]
        token_ids, mask = torch.from_numpy(rows.token_ids), torch.from_numpy(rows.loss_mask)
        behaviour, advantages = torch.from_numpy(rows.logprobs), torch.from_numpy(found).float()
        self._start.stepped(self._done, trained_rows(rows, token_ids, mask, behaviour, advantages))
        logits = self._policy(token_ids[:, :-1]).logits / TEMPERATURE
        taken = logits.log_softmax(-1).gather(-1, token_ids[:, 1:, None])[..., 0]
        ratio = (taken - behaviour[:, 1:])[mask[:, 1:]].exp()
        each = advantages[:, None].expand_as(taken)[mask[:, 1:]]
        loss = -torch.minimum(ratio * each, ratio.clamp(0.8, 1.28) * each).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def _save(self, path: Path) -> None:
        self._policy.save_pretrained(path)

    def _write_checkpoint(self) -> None:
        unfinished = self._checkpoint.with_suffix(".unfinished")
        saved = {
            "policy": self._policy.state_dict(),
            "steps": self._steps.state_dict(),
            "done": self._done,
        }
        with unfinished.open("wb") as file:
            torch.save(saved, file)
        unfinished.replace(self._checkpoint)


def trained_rows(
    rows: PaddedSequences,
    token_ids: torch.Tensor,
    mask: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
) -> list[TrainedRow]:
    return [
        TrainedRow(
            token_ids=token_ids[number, :length].tolist(),
            loss_mask=mask[number, :length].tolist(),
            logprobs=behaviour[number, :length].tolist(),
            weight_versions=rows.weight_versions[number, :length].tolist(),
            advantage=advantages[number].item(),
            group=int(rows.groups[number]),
        )
        for number, length in enumerate(rows.lengths)
    ]


ADAPTER = Adapter(
    name="plain",
    trainer=PlainLoop,
    without=frozenset({"reward"}),
    any_batch_size=True,
    in_a_process=True,
)
