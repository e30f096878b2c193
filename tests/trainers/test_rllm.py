"""What rLLM's adapter does beyond the contract: its backend, on the hooks that rLLM calls."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rollyard.client import Client
from rollyard.errors import Conflict
from rollyard.messages import RunSettings, Sampling
from rollyard.trainers.rllm import Rollouts, backend
from rollyard.trainers.verl.config import weights_of
from rollyard.training_run import TrainingRun
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE
from tests.trainers.sampled import RandomGroups
from tests.trainers.training import rows


class VerlBackend:
    """rLLM's, of which this is all that the adapter builds on."""

    def __init__(self, directory: Path) -> None:
        self.config = self.full_config = config(directory)

    async def on_train_start(self, trainer_state: Any) -> None:
        self.global_steps = 0
        self.write_weights()

    def on_batch_start(self, trainer_state: Any) -> None:
        self.global_steps += 1

    async def on_batch_end(self, trainer_state: Any) -> None:
        self.write_weights()

    async def on_train_end(self, trainer_state: Any) -> None:
        self.ended = True

    def write_weights(self) -> None:
        folder = weights_of(self.directory, self.global_steps)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").touch()

    @property
    def directory(self) -> Path:
        return Path(self.config.actor_rollout_ref.rollout.custom["checkpoints"])


def config(directory: Path) -> SimpleNamespace:
    rollout = SimpleNamespace(
        n=GROUP_SIZE,
        temperature=TEMPERATURE,
        custom={"checkpoints": str(directory / "weights")},
    )
    return SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
        data=SimpleNamespace(train_batch_size=GROUPS),
        trainer=SimpleNamespace(default_local_dir=str(directory / "output")),
    )


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("http://127.0.0.1:9", token="none", show_progress=False) as client:
        yield client


@pytest.fixture
def orchestrator() -> RandomGroups:
    return RandomGroups()


def run_on(orchestrator: RandomGroups) -> TrainingRun:
    settings = RunSettings(
        run_id="run", group_size=GROUP_SIZE, sampling=Sampling(temperature=TEMPERATURE)
    )
    return TrainingRun(orchestrator.take_over(), settings, rows(12))


@pytest.fixture
def trainer(
    client: Client, orchestrator: RandomGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """rLLM's backend, as `backend` makes it of this one."""
    theirs: dict[str, dict[str, Any]] = {
        "rllm.trainer.verl.verl_backend": {"VerlBackend": VerlBackend},
        "rllm.engine.rollout": {"ModelOutput": SimpleNamespace},
        "rllm.types": dict.fromkeys(("Episode", "Step", "Trajectory"), SimpleNamespace),
        "rllm.workflows.workflow": {
            "TerminationReason": SimpleNamespace(MAX_TURNS_EXCEEDED="turns", ENV_DONE="done")
        },
    }
    for name, found in theirs.items():
        module = ModuleType(name)
        vars(module).update(found)
        monkeypatch.setitem(sys.modules, name, module)
    return backend(lambda _: (client, run_on(orchestrator)))(tmp_path)


async def begun(trainer: Any, steps: int) -> None:
    """The training, up to the rollouts of its last step."""
    await trainer.on_train_start(None)
    for step in range(1, steps + 1):
        trainer.on_batch_start(None)
        assert len(await trainer.generate_episodes([{}] * GROUPS, None)) == GROUPS * GROUP_SIZE
        if step < steps:
            await trainer.on_batch_end(None)


def test_a_training_that_ends_publishes_its_weights_and_acknowledges_its_last_batch(
    trainer: Any, orchestrator: RandomGroups
) -> None:
    async def train() -> None:
        await begun(trainer, steps=2)
        await trainer.on_batch_end(None)
        await trainer.on_train_end(None)

    asyncio.run(train())
    assert trainer.ended
    assert len(orchestrator.checkpoints) == 3
    trained = [
        prompt.instance["row"] for batch in orchestrator.delivered.values() for prompt in batch
    ]
    assert min(trained, default=2 * GROUPS) == 2 * GROUPS


def test_a_batch_whose_step_failed_is_not_acknowledged(
    trainer: Any, orchestrator: RandomGroups
) -> None:
    """rLLM calls `on_train_end` after an error, too. What lies there as the step's weights is of
    an earlier process."""

    async def train() -> None:
        await begun(trainer, steps=2)
        trainer.write_weights()
        await trainer.on_train_end(None)

    asyncio.run(train())
    assert trainer.ended
    assert len(orchestrator.checkpoints) == 2
    left = [prompt.instance["row"] for batch in orchestrator.delivered.values() for prompt in batch]
    assert min(left) == GROUPS


@pytest.mark.parametrize("is_there", [False, True], ids=["no directory", "an empty one"])
def test_weights_that_verl_has_not_written_are_an_error_that_says_why(
    client: Client, orchestrator: RandomGroups, tmp_path: Path, is_there: bool
) -> None:
    rollouts = Rollouts(config(tmp_path), client, run_on(orchestrator))
    if is_there:
        weights_of(tmp_path / "weights", 0).mkdir(parents=True)
    with pytest.raises(Conflict, match=r"no weights to .*step-0; .*rollout.name=rollyard"):
        rollouts.next(1)
    assert not orchestrator.checkpoints
