"""How many workers are added, for any amount of work."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.scaling import ScalingSettings, workers_to_add
from rollyard.errors import InvalidMessage

COUNT = st.integers(0, 10_000)
SETTINGS = st.builds(
    ScalingSettings, most_workers=st.integers(1, 500), tasks_per_worker=st.integers(1, 50)
)


@given(tasks=COUNT, workers=COUNT, settings=SETTINGS)
def test_there_are_never_more_workers_than_allowed(
    tasks: int, workers: int, settings: ScalingSettings
) -> None:
    added = workers_to_add(tasks, workers, settings)
    assert added >= 0
    assert added == 0 or workers + added <= settings.most_workers


@given(workers=COUNT, settings=SETTINGS)
def test_nothing_is_added_for_no_work(workers: int, settings: ScalingSettings) -> None:
    assert workers_to_add(0, workers, settings) == 0


@given(tasks=st.integers(1, 10_000), settings=SETTINGS)
def test_work_always_has_a_worker(tasks: int, settings: ScalingSettings) -> None:
    assert workers_to_add(tasks, 0, settings) >= 1


@given(tasks=COUNT, workers=COUNT, settings=SETTINGS)
def test_each_worker_has_its_share_or_there_are_as_many_as_allowed(
    tasks: int, workers: int, settings: ScalingSettings
) -> None:
    total = workers + workers_to_add(tasks, workers, settings)
    assert total * settings.tasks_per_worker >= tasks or total >= settings.most_workers


@given(tasks=COUNT, more=COUNT, workers=COUNT, settings=SETTINGS)
def test_more_work_never_adds_fewer(
    tasks: int, more: int, workers: int, settings: ScalingSettings
) -> None:
    few = workers_to_add(tasks, workers, settings)
    assert workers_to_add(tasks + more, workers, settings) >= few


@given(tasks=COUNT, workers=COUNT, settings=SETTINGS)
def test_what_was_added_is_enough(tasks: int, workers: int, settings: ScalingSettings) -> None:
    added = workers_to_add(tasks, workers, settings)
    assert workers_to_add(tasks, workers + added, settings) == 0


@pytest.mark.parametrize("change", [{"most_workers": 0}, {"tasks_per_worker": 0}])
def test_settings_without_any_worker_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="must be positive"):
        ScalingSettings(**change)
