"""Bets on Groups: off by default, and each of them counted."""

import random

import pytest

from orchestrator.events import Tried
from orchestrator.sampling.decisions import Cancel, Drop, Enqueue, Remember, Why
from orchestrator.sampling.prediction import Odds
from rollyard.errors import InvalidMessage
from rollyard.messages import Criterion, Prediction, RunSettings, Unit
from tests.orchestrator.sampling.driving import (
    delivered,
    feed,
    finish,
    jobs,
    new_sampler,
    request,
    result,
)

HALF_HOPELESS = {"0/8": 50, "8/8": 5, "2/8": 15, "4/8": 15, "6/8": 15}


def odds(**bets: object) -> Odds:
    settings = RunSettings(run_id="r", group_size=8, prediction=Prediction(**bets))  # type: ignore[arg-type]
    return Odds(settings, HALF_HOPELESS)


def test_what_is_effective_is_learnt_from_the_first_group_of_every_row() -> None:
    assert odds().effective == pytest.approx(0.45, abs=0.05)


def test_a_group_with_both_outcomes_is_sure_and_one_with_all_members_equal_is_not() -> None:
    assert odds().of((0, 0), 1, 1) == pytest.approx(1.0)
    assert odds().of((0, 0), 0, 8) == pytest.approx(0.0)


def test_groups_of_thousands_of_members_have_odds_too() -> None:
    settings = RunSettings(run_id="r", group_size=4096)
    seen = Odds(settings, {"2048/4096": 2, "0/4096": 2})
    assert seen.effective == pytest.approx(0.5, abs=0.3)
    assert seen.of((0, 0), 2000, 2000) == pytest.approx(1.0)
    assert seen.of((9000, 9000), 0, 0) == pytest.approx(1.0)


def test_more_failures_are_worse_odds() -> None:
    chances = [odds().of((0, 0), 0, failed) for failed in range(1, 8)]
    assert chances == sorted(chances, reverse=True)


def test_a_row_that_was_never_solved_is_skipped_but_for_one_time_in_ten() -> None:
    skipped = sum(odds().skips(f"g{number}", (0, 16)) for number in range(1000))
    assert 850 < skipped < 950


def test_a_row_that_is_always_solved_is_skipped_too() -> None:
    assert sum(odds().skips(f"g{number}", (24, 0)) for number in range(100)) > 80


def test_a_row_with_both_outcomes_is_never_skipped() -> None:
    assert not any(odds().skips(f"g{number}", (4, 4)) for number in range(100))


def test_a_past_fades_with_every_batch_until_its_row_is_tried_again() -> None:
    tried = Tried(solved=0.0, failed=8.0, batches=0)
    table = odds(forgetting=0.2)
    assert table.faded(tried, 1)[1] == pytest.approx(6.4)
    assert not any(table.skips(f"g{number}", table.faded(tried, 5)) for number in range(100))


def test_a_skipped_prompt_never_begins_and_is_counted() -> None:
    sampler = new_sampler(prediction=Prediction(skip_by_history=True), group_size=8)
    sampler.state.pass_counts = dict(HALF_HOPELESS)
    hopeless = Tried(solved=0.0, failed=24.0, batches=0)
    decided = [feed(sampler, f"g{n}", row="x", tried=hopeless) for n in range(20)]
    skipped = [each for each in decided if isinstance(each[0], Drop)]
    assert all(each[0].why is Why.SKIPPED for each in skipped)
    assert len(skipped) == sampler.state.groups_skipped > 10


def test_a_group_with_a_history_begins_when_the_sampler_says_so() -> None:
    sampler = new_sampler(prediction=Prediction(skip_by_history=True))
    assert feed(sampler, "g", row="x") == [Enqueue(job_ids=jobs("g", 0, 1))]


def test_what_became_of_a_row_is_remembered() -> None:
    sampler = new_sampler(prediction=Prediction(skip_by_history=True))
    feed(sampler, "g", row="x", tried=Tried(solved=1.0, failed=1.0, batches=0))
    result(sampler, "g", 0, 1.0)
    remembered = result(sampler, "g", 1, 1.0)[0]
    assert remembered == Remember(row="x", tried=Tried(solved=3.0, failed=1.0, batches=0))


def test_a_second_stage_begins_as_soon_as_both_outcomes_are_there() -> None:
    sampler = new_sampler(prediction=Prediction(stage_members=3), group_size=8)
    request(sampler, 1)
    feed(sampler, "g")
    assert result(sampler, "g", 0, 0.0) == []
    assert result(sampler, "g", 2, 1.0) == [Enqueue(job_ids=jobs("g", 3, 4, 5, 6, 7))]


def test_a_first_stage_without_hope_is_the_end_and_is_counted() -> None:
    sampler = new_sampler(prediction=Prediction(stage_members=4), group_size=8)
    sampler.state.pass_counts = dict(HALF_HOPELESS)
    request(sampler, 1)
    feed(sampler, "g")
    for member in range(3):
        result(sampler, "g", member, 0.0)
    assert result(sampler, "g", 3, 0.0) == [Drop(group_ids=("g",), why=Why.CUT_SHORT)]
    assert sampler.state.groups_cut_short == 1


def test_redundant_members_are_cancelled_when_enough_have_finished() -> None:
    sampler = new_sampler(prediction=Prediction(redundant_members=2))
    request(sampler, 1)
    feed(sampler, "g")
    result(sampler, "g", 3, 0.0)
    decisions = result(sampler, "g", 1, 1.0)
    assert Cancel(job_ids=jobs("g", 0, 2)) in decisions
    assert delivered(decisions)[0].members == (1, 3)
    assert sampler.state.members_redundant == 2


def test_in_launch_order_a_quick_group_waits_for_those_fed_before_it() -> None:
    sampler = new_sampler(prediction=Prediction(launch_order=True))
    request(sampler, 1)
    feed(sampler, "slow")
    assert finish(sampler, "quick", 0.0, 1.0) == []
    result(sampler, "slow", 0, 0.0)
    decisions = result(sampler, "slow", 1, 0.0)
    assert delivered(decisions)[0].group_id == "quick"
    assert not sampler.state.open


def test_predictions_are_off_unless_asked_for() -> None:
    assert Prediction() == Prediction(
        skip_by_history=False, stage_members=0, redundant_members=0, launch_order=False
    )


def test_predictions_of_groups_are_refused_where_trajectories_are_counted() -> None:
    with pytest.raises(InvalidMessage, match="predictions are of groups"):
        RunSettings(
            run_id="r",
            unit=Unit.TRAJECTORIES,
            criterion=Criterion.COMPLETE,
            prediction=Prediction(stage_members=2),
        )


def test_the_prior_stands_on_its_feet_whatever_was_seen() -> None:
    draw = random.Random(7)
    for _ in range(20):
        seen = {f"{draw.randint(0, 8)}/8": draw.randint(1, 50) for _ in range(3)}
        settings = RunSettings(run_id="r", group_size=8)
        table = Odds(settings, seen)
        assert 0.0 <= table.of((draw.random() * 9, draw.random() * 9), 0, 3) <= 1.0
