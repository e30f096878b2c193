import msgspec
import pytest

from rollyard.messages import BatchReport, Bias, Counters, SlotSeconds
from tests.trajectories import batch, group, trajectory

TALK = trajectory(("given", [1, 2]), ("sampled", [3, 4]), ("given", [5]), ("sampled", [6]))
SHORT = trajectory(("given", [1]), ("sampled", [9]))


def test_a_batch_is_numbers_of_its_trajectories() -> None:
    cut = msgspec.structs.replace(TALK, truncated=True)
    report = BatchReport(weight_version=7, bias=Bias(ages={0: 3, 2: 1}))
    sampled = batch(group("a", (1.0, TALK), (0.0, SHORT)), group("b", (0.5, cut), (0.5, SHORT)))
    metrics = msgspec.structs.replace(sampled, report=report).metrics()
    assert {name: n for name, n in metrics.items() if name.startswith("batch/")} == {
        "batch/groups": 2,
        "batch/trajectories": 4,
        "batch/reward": 0.5,
        "batch/sampled_tokens": 2.0,
        "batch/turns": 1.5,
        "batch/truncated": 0.25,
        "batch/weight_version": 7,
        "batch/staleness": 0.5,
        "batch/staleness_max": 2,
    }


def test_the_runs_reward_is_that_of_all_jobs_accepted() -> None:
    counters = Counters(jobs_accepted=8, rewards_sum=2.0, groups_filtered=3)
    metrics = batch(counters=counters).metrics()
    assert metrics["run/reward"] == 0.25
    assert metrics["run/groups_filtered"] == 3
    assert metrics["batch/reward"] == 0.0


def test_its_cost_is_that_of_its_report() -> None:
    report = BatchReport(seconds=12.5, slots=16, slot_seconds=SlotSeconds(useful=3.0, idle=1.0))
    metrics = msgspec.structs.replace(batch(), report=report).metrics()
    assert metrics["cost/seconds"] == 12.5
    assert metrics["cost/slot_seconds_useful"] == 3.0
    assert metrics["cost/slot_seconds_idle"] == 1.0


def test_each_is_a_number_that_every_tracker_takes() -> None:
    metrics = batch(group("a", (1.0, TALK))).metrics()
    assert all(type(number) in (int, float) for number in metrics.values())
    assert all(name == name.strip() and " " not in name for name in metrics)
    assert msgspec.json.decode(msgspec.json.encode(metrics)) == pytest.approx(metrics)
