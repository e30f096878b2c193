"""Memory that grows with the work is told from memory that settles."""

import pytest

from chaos.history import Event
from chaos.memory import MIN_SECONDS, growth_by_kind

MIB = 2**20


def sample(at: float, redis_mib: float = 2, **processes_mib: tuple[int, float]) -> Event:
    resident = {
        name.replace("_", "-"): [pid, int(mib * MIB)] for name, (pid, mib) in processes_mib.items()
    }
    return {"at": at, "redis_bytes": int(redis_mib * MIB), "processes": resident}


def test_what_settles_after_its_start_is_flat() -> None:
    samples = [sample(at, agent_0=(1, min(40 + 10 * at, 100))) for at in range(90)]
    found = growth_by_kind(samples)
    assert {kind: growth.flat for kind, growth in found.items()} == {"redis": True, "agent": True}
    assert found["agent"].last_mib == 100


@pytest.mark.parametrize("kind", ["redis", "orchestrator"])
def test_what_grows_all_the_time_is_not_flat(kind: str) -> None:
    grown = "redis_mib" if kind == "redis" else "orchestrator_0"
    samples = [
        sample(at, **{grown: mib if kind == "redis" else (1, mib)})  # type: ignore[arg-type]
        for at, mib in ((at, 100 + at) for at in range(90))
    ]
    assert not growth_by_kind(samples)[kind].flat


def test_the_life_that_grew_most_speaks_for_its_kind() -> None:
    samples = [sample(at, agent_0=(1, 100), agent_1=(2, 100 + at)) for at in range(90)]
    assert growth_by_kind(samples)["agent"].last_mib > 150


def test_a_process_that_was_started_again_is_another_one() -> None:
    first = [sample(at, agent_0=(1, 100)) for at in range(70)]
    second = [sample(at, agent_0=(2, 300)) for at in range(70, 140)]
    assert growth_by_kind(first + second)["agent"].flat


def test_a_life_too_short_to_tell_is_not_judged() -> None:
    samples = [sample(at, agent_0=(1, 100 * at)) for at in range(int(MIN_SECONDS))]
    assert growth_by_kind(samples) == {}
