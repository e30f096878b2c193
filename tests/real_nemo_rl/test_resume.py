"""NeMo-RL's trainer, killed anywhere, goes on from its last whole checkpoint."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from rollyard.messages import Batch, WeightReport
from tests.real_nemo_rl.grpo import GROUPS, STEPS, Training, config
from tests.real_nemo_rl.sampled import SampledGroups, rollouts_of, run_on

ROWS = [{"row": number} for number in range(GROUPS * STEPS)]
VALIDATION = [{"row": 100}, {"row": 101}]
TIMES_KILLED = 20


class Killed(BaseException):
    pass


class Process:
    """One process of a trainer, which dies at its moment number `dies_at`: before or after each
    call of Rollyard and of NeMo-RL's that changes something."""

    def __init__(
        self,
        orchestrator: SampledGroups,
        directory: Path,
        policy_dir: Path,
        dies_at: int | None = None,
        *,
        val_period: int = 0,
    ) -> None:
        self._dies_at = dies_at
        self.moments: list[str] = []
        self.training = Training(
            config(directory, val_period=val_period),
            policy_dir,
            ROWS,
            lambda *_: self._passes("backward"),
            validation=VALIDATION,
        )
        self.run = run_on(orchestrator, self.training.dataloader)
        self.rollouts = rollouts_of(self.run, directory, policy_dir)
        for owner, name in (
            (self.run, "rollout"),
            (self.run, "weights_updated"),
            (self.run, "ack"),
            (self.training.policy, "train"),
            (self.training.policy, "save_checkpoint"),
            (self.rollouts, "state_dict"),
            (self.training.checkpointer, "begin_finalization"),
        ):
            self._watch(owner, name)

    @property
    def resumes(self) -> str:
        checkpoint = self.training.checkpoint
        return f"goes on from {Path(checkpoint).name}" if checkpoint else "begins anew"

    def train(self) -> None:
        try:
            self.training.train(self.rollouts)
        finally:
            self.training.checkpointer.shutdown()
            self.run.close()

    def _watch(self, owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            self._passes(f"before {name}")
            answer = call(*given, **named)
            self._passes(f"after {name}")
            return answer

        setattr(owner, name, watched)

    def _passes(self, moment: str) -> None:
        self.moments.append(moment)
        if len(self.moments) == self._dies_at:
            raise Killed(moment)


def weights_of(process: Process) -> list[torch.Tensor]:
    return [each.detach() for each in process.training.policy.model.parameters()]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, policy_dir: Path) -> Process:
    orchestrator = SampledGroups(policy_dir)
    process = Process(orchestrator, tmp_path_factory.mktemp("uninterrupted"), policy_dir)
    process.train()
    fed = [row for batch in process.run.returned for row in rows_of(batch)]
    assert sorted(fed) == list(range(len(ROWS)))
    assert fed != sorted(fed)
    return process


@pytest.mark.parametrize("seed", range(TIMES_KILLED))
def test_a_trainer_killed_twice_trains_on_each_row_once(
    seed: int,
    uninterrupted: Process,
    tmp_path: Path,
    policy_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeded = random.Random(seed)
    val_period = seed % 2  # every other time each step is followed by a validation
    orchestrator = SampledGroups(policy_dir)
    died = []
    for _ in range(2):
        dies_at = seeded.randint(1, len(uninterrupted.moments) // 2)
        process = Process(orchestrator, tmp_path, policy_dir, dies_at, val_period=val_period)
        with pytest.raises(Killed) as error:
            process.train()
        died.append(str(error.value))
    last = Process(orchestrator, tmp_path, policy_dir, val_period=val_period)
    last.train()
    with capsys.disabled():
        print(f"\nkilled {', then '.join(died)}; {last.resumes}")
    for mine, theirs in zip(weights_of(last), weights_of(uninterrupted), strict=True):
        assert torch.equal(mine, theirs)
    assert not orchestrator.delivered


def test_a_batch_is_acknowledged_once_its_checkpoint_is_whole(
    tmp_path: Path, policy_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = SampledGroups(policy_dir)
    training = Training(config(tmp_path), policy_dir, ROWS, lambda *_: None)
    run = run_on(orchestrator, training.dataloader)
    waited_for = threading.Event()
    wait = training.checkpointer.finalize_pending
    acknowledge = run.ack
    at_ack: list[str | None] = []

    def finalize_pending() -> None:
        waited_for.set()
        wait()
        waited_for.clear()

    def ack(batch: Batch) -> None:
        at_ack.append(training.checkpointer.get_latest_checkpoint_path())
        acknowledge(batch)

    monkeypatch.setattr(training.checkpointer, "finalize_pending", finalize_pending)
    monkeypatch.setattr(training.policy, "finalize_async_save", lambda: waited_for.wait(30))
    monkeypatch.setattr(run, "ack", ack)
    training.train(rollouts_of(run, tmp_path, policy_dir))
    assert [Path(each or "none").name for each in at_ack] == [
        f"step_{step}" for step in range(1, STEPS + 1)
    ]


def test_weights_are_announced_where_the_refit_has_put_them(
    tmp_path: Path, policy_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(config(tmp_path), policy_dir, ROWS, lambda *_: None)
    run = run_on(SampledGroups(policy_dir), training.dataloader)
    announce = run.weights_updated
    served: list[bool] = []

    def weights_updated(version: int) -> WeightReport:
        parameters = training.policy.model.parameters()
        there = zip(training.generation.served, parameters, strict=True)
        served.append(all(torch.equal(one, other) for one, other in there))
        return announce(version)

    monkeypatch.setattr(run, "weights_updated", weights_updated)
    training.train(rollouts_of(run, tmp_path, policy_dir))
    assert served == [True] * STEPS


def rows_of(batch: Batch) -> list[int]:
    return [group.prompt.instance["row"] for group in batch.groups]
