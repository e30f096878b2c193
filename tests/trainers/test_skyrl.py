"""What SkyRL's adapter does beyond the contract: it refuses what does not agree."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollyard.client import Client
from rollyard.errors import Conflict, InvalidMessage
from rollyard.messages import RunSettings, Sampling, Unit
from rollyard.trainers.skyrl import Rollouts, generator_output
from rollyard.training_run import TrainingRun
from tests.trainers.adapters.skyrl import TrajectoryID
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE
from tests.trainers.sampled import RandomGroups
from tests.trainers.training import rows


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("http://127.0.0.1:9", token="none", show_progress=False) as client:
        yield client


def run_on(**settings: Any) -> TrainingRun:
    given = {"group_size": GROUP_SIZE, "sampling": Sampling(temperature=TEMPERATURE), **settings}
    return TrainingRun(RandomGroups().take_over(), RunSettings(run_id="run", **given), rows(12))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"unit": Unit.TRAJECTORIES, "criterion": "complete"}, "SkyRL takes groups"),
        ({"sampling": Sampling(temperature=1.0)}, r"temperature=0.7, and the run samples at 1.0"),
    ],
)
def test_settings_that_do_not_agree_are_refused(
    client: Client, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidMessage, match=said):
        Rollouts(client, run_on(**settings), trainer(tmp_path), tmp_path / "weights")


def trainer(checkpoints: Path | str) -> SimpleNamespace:
    """SkyRL's configuration of that name."""
    return SimpleNamespace(
        ckpt_path=str(checkpoints),
        train_batch_size=GROUPS,
        algorithm=SimpleNamespace(temperature=TEMPERATURE),
    )


def test_what_a_step_was_trained_on_is_kept_while_there_may_be_a_checkpoint_of_it(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "global_step_2").mkdir()
    here = Rollouts(client, run_on(), trainer(tmp_path), tmp_path / "weights")
    assert [step for step in range(4) if here.is_kept(step)] == [2]
    cloud = Rollouts(client, run_on(), trainer("s3://bucket/output"), tmp_path / "weights")
    assert all(cloud.is_kept(step) for step in range(4))


@pytest.mark.parametrize("prompts", [1, GROUPS * 2], ids=["larger groups", "smaller groups"])
def test_a_batch_of_other_groups_is_refused_though_it_has_as_many_trajectories(
    prompts: int,
) -> None:
    batch = run_on().rollout(GROUPS)
    samples = GROUPS * GROUP_SIZE // prompts
    identities = [TrajectoryID(f"{n}", member) for n in range(prompts) for member in range(samples)]
    with pytest.raises(InvalidMessage, match=rf"of {prompts} prompts, and the batch has 8 of 2"):
        generator_output(batch, identities)


def test_a_training_without_the_callback_is_an_error_that_names_it(
    client: Client, tmp_path: Path
) -> None:
    rollouts = Rollouts(client, run_on(), trainer(tmp_path), tmp_path / "weights")
    metadata = SimpleNamespace(global_step=1, training_phase="train")
    with pytest.raises(Conflict, match=r"no weights .* published; .*rollouts.callback\(\)"):
        asyncio.run(rollouts.generate({"batch_metadata": metadata, "trajectory_ids": []}))
