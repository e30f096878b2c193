"""When finished members are worth a place in a Batch."""

import pytest

from orchestrator.sampling.criteria import is_effective
from rollyard.errors import InvalidMessage
from rollyard.messages import Criterion, RunSettings, Unit


@pytest.mark.parametrize(
    ("criterion", "effective", "not_effective"),
    [
        (Criterion.REWARD_SPREAD, [0.5, 0.25], [0.5, 0.5]),
        (Criterion.PARTLY_SOLVED, [1.0, 0.9], [0.2, 0.9]),
        (Criterion.PARTLY_SOLVED, [1.0, 0.0], [1.0, 2.0]),
        (Criterion.ANY_SOLVED, [0.0, 1.0], [0.0, 0.5]),
        (Criterion.ANY_SOLVED, [1.0, 1.0], [0.0, 0.0]),
    ],
)
def test_each_criterion_tells_groups_apart(
    criterion: Criterion, effective: list[float], not_effective: list[float]
) -> None:
    settings = RunSettings(run_id="r", group_size=2, criterion=criterion)
    assert is_effective(settings, effective)
    assert not is_effective(settings, not_effective)


def test_what_counts_as_solved_is_the_runs_to_say() -> None:
    strict = RunSettings(run_id="r", criterion=Criterion.ANY_SOLVED, solved_at=2.0)
    assert not is_effective(strict, [1.0, 1.5])


def test_every_group_counts_in_an_evaluation() -> None:
    settings = RunSettings(run_id="r", group_size=1, criterion=Criterion.COMPLETE)
    assert is_effective(settings, [0.0])


def test_a_criterion_that_compares_members_is_refused_for_single_trajectories() -> None:
    with pytest.raises(InvalidMessage, match="single trajectory can never be effective"):
        RunSettings(run_id="r", unit=Unit.TRAJECTORIES)
