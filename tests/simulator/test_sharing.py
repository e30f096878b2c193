"""A resource that all who use it share evenly, in schedules worked out by hand."""

from functools import partial

import pytest

from simulator.clock import Clock
from simulator.fleet.sharing import SharedResource
from simulator.work import Occupation, Timer


def run(clock: Timer) -> None:
    while (happening := clock.next()) is not None:
        assert not isinstance(happening, Occupation)
        happening()


def two_cpus(clock: Timer) -> SharedResource:
    return SharedResource(clock, lambda uses: min(1.0, 2 / uses))


def test_uses_slow_each_other_down_as_long_as_they_are_too_many() -> None:
    clock: Timer = Clock()
    cpus, done = two_cpus(clock), dict[str, float]()

    def note(name: str) -> None:
        done[name] = clock.now

    for name, work in (("a", 1.0), ("b", 2.0), ("c", 2.0), ("d", 4.0)):
        cpus.begin(work, partial(note, name))
    run(clock)
    # all at a half until a is done; then three at two thirds; then d alone at one
    assert done == pytest.approx({"a": 2.0, "b": 3.5, "c": 3.5, "d": 5.5})
    assert cpus.busy_seconds == pytest.approx(5.5)
    assert cpus.use_seconds == pytest.approx(4 * 2.0 + 3 * 1.5 + 2.0)


def test_what_is_stopped_tells_what_is_left_and_makes_room() -> None:
    clock: Timer = Clock()
    cpus, done = two_cpus(clock), list[float]()
    for _ in range(2):
        cpus.begin(3.0, lambda: done.append(clock.now))
    stopped = [cpus.begin(3.0, done.clear) for _ in range(2)]
    left = list[float]()
    clock.at(2.0, lambda: left.extend(cpus.stop(use) for use in stopped))
    run(clock)
    assert left == pytest.approx([2.0, 2.0])
    assert done == pytest.approx([4.0, 4.0])
    assert cpus.number == 0
