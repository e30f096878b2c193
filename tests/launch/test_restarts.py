"""When parts of a deployment start again and when they are given up, for any order of events."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from launch.restarts import Part, PartState, RestartPolicy, due, fatal, next_start

POLICY = RestartPolicy(first_seconds=1.0, max_seconds=10.0, healthy_seconds=60.0, max_deaths=4)
KINDS = ("llm", "agent", "redis")

lives = st.lists(st.floats(min_value=0.0, max_value=200.0), max_size=20)
"""For each life of a part, the seconds that it is ready for; below 1 it never gets ready."""


def lived(part: Part, lives: list[float]) -> list[Part]:
    """The part after each of its deaths, until it is given up."""
    after: list[Part] = []
    now = 0.0
    for seconds in lives:
        if seconds >= 1.0:
            part = part.became_ready(now)
        now += seconds
        part = part.died("fell over", now, POLICY)
        after.append(part)
        if part.state is PartState.GIVEN_UP:
            break
        now = part.starts_at
        assert due([part], now) == [part]
        part = part.started(now)
    return after


def part(name: str = "llm-0", kind: str = "llm") -> Part:
    return Part(name=name, kind=kind)


@given(lives)
def test_a_part_is_given_up_after_one_death_too_many_in_a_row_and_never_before(
    lives: list[float],
) -> None:
    in_a_row = 0
    for number, after in enumerate(lived(part(), lives)):
        in_a_row = 1 if lives[number] >= POLICY.healthy_seconds else in_a_row + 1
        assert after.deaths == in_a_row
        assert (after.state is PartState.GIVEN_UP) == (in_a_row > POLICY.max_deaths)
        assert after.restarts == number


@given(lives)
def test_waits_double_up_to_a_bound_and_begin_anew_after_health(lives: list[float]) -> None:
    for after in lived(part(), lives):
        wait = after.starts_at - after.died_at
        assert abs(wait - min(10.0, 2.0 ** (after.deaths - 1))) < 1e-6
        assert next_start([after]) == (None if after.deaths > 4 else after.starts_at)


@given(lives)
def test_a_part_that_was_given_up_never_starts_again(lives: list[float]) -> None:
    for after in lived(part(), lives):
        if after.state is PartState.GIVEN_UP:
            assert due([after], 1e9) == []


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(PartState)), min_size=1))
def test_nothing_works_exactly_when_all_of_a_kind_are_given_up(
    parts: list[tuple[str, PartState]],
) -> None:
    made = [
        Part(name=f"{kind}-{i}", kind=kind, state=state, died_at=float(i))
        for i, (kind, state) in enumerate(parts)
    ]
    lost = [
        kind
        for kind in KINDS
        if (those := {each.state for each in made if each.kind == kind})
        and those == {PartState.GIVEN_UP}
    ]
    last = fatal(made)
    assert (last is not None) == bool(lost)
    if last is not None:
        assert last.kind in lost
        assert last.died_at == max(each.died_at for each in made if each.kind == last.kind)


def test_a_part_waits_for_those_that_it_starts_after() -> None:
    died = Part(name="orchestrator", kind="o", after=("redis",)).died("fell over", 5.0, POLICY)
    redis = Part(name="redis", kind="r")
    for state in PartState:
        parts = [died, msgspec.structs.replace(redis, state=state, starts_at=1e9)]
        ready = state is PartState.READY
        assert (died in due(parts, 100.0)) == ready
        assert (next_start(parts) == died.starts_at) == ready


def test_the_usual_policy_tries_for_a_minute_and_a_half() -> None:
    policy = RestartPolicy()
    waits = [policy.wait_after(deaths) for deaths in range(1, policy.max_deaths + 1)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert policy.wait_after(10**6) == 30
