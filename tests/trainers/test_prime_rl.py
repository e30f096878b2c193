"""What prime-rl's adapter does beyond the contract: it goes on from the files of its steps."""

from pathlib import Path

import pytest

from rollyard.errors import InvalidMessage
from rollyard.messages import RunSettings, Sampling
from rollyard.trainers.prime_rl import Feed, PrimeTrainer
from rollyard.training_run import TrainingRun
from tests.trainers.contract import GROUP_SIZE, GROUPS, TEMPERATURE
from tests.trainers.sampled import RandomGroups
from tests.trainers.training import rows

SETTINGS = RunSettings(
    run_id="run", group_size=GROUP_SIZE, sampling=Sampling(temperature=TEMPERATURE)
)


def feed_on(
    orchestrator: RandomGroups, directory: Path, policy_dir: Path, *, data_ranks: int
) -> Feed:
    run = TrainingRun(orchestrator.take_over(), SETTINGS, rows(12))
    trainer = PrimeTrainer(
        output_dir=directory, model=policy_dir, data_ranks=data_ranks, sequence_tokens=64
    )
    return Feed(run, GROUPS, trainer)


def broadcast(directory: Path, step: int) -> None:
    """As the trainer does after `step`."""
    folder = directory / "broadcasts" / f"step_{step}"
    folder.mkdir(parents=True)
    (folder / "STABLE").touch()


@pytest.mark.parametrize("data_ranks", [1, 4])
def test_steps_that_were_written_for_another_number_of_ranks_are_not_begun_anew(
    tmp_path: Path, policy_dir: Path, data_ranks: int
) -> None:
    orchestrator = RandomGroups()
    feed = feed_on(orchestrator, tmp_path, policy_dir, data_ranks=2)
    for step in range(2):
        broadcast(tmp_path, step)
        feed.feed()
    written = sorted(tmp_path.glob("rollouts/*/*"))
    said = f"step 2 was written for 2 data ranks, .* has {data_ranks}; go on with data_ranks=2"
    with pytest.raises(InvalidMessage, match=said):
        feed_on(orchestrator, tmp_path, policy_dir, data_ranks=data_ranks)
    assert sorted(tmp_path.glob("rollouts/*/*")) == written
    assert feed_on(orchestrator, tmp_path, policy_dir, data_ranks=2).step == 2
