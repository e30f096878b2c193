"""The warm pool: what it hands out, keeps ready, replaces, and leaves behind."""

import threading
from collections.abc import Iterator

import pytest

from agent_server.sandbox import warm_pool
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.held_sandbox import HeldSandbox
from agent_server.sandbox.holder import Holder
from agent_server.sandbox.protocol import (
    CommandResult,
    OpenSandbox,
    SandboxFactory,
    SandboxNeeds,
    SandboxUnavailable,
)
from agent_server.sandbox.warm_pool import WarmPool
from tests.agent_server.fakes import SandboxOfNothing
from tests.waiting import until

NEEDS = SandboxNeeds()
OTHERS = SandboxNeeds(programs=("bash",))


class Counting:
    """A factory of sandboxes that do nothing, which says what it has made."""

    def __init__(self) -> None:
        self.made: list[Fragile] = []
        self.broken = False

    def open(self, needs: SandboxNeeds) -> OpenSandbox:
        return self.make(needs, self)

    def make(self, needs: SandboxNeeds, siblings: SandboxFactory) -> OpenSandbox:
        if self.broken:
            raise SandboxUnavailable("no more of them")
        self.made.append(Fragile(needs))
        return self.made[-1]


class Fragile(SandboxOfNothing):
    def __init__(self, needs: SandboxNeeds) -> None:
        self.needs = needs
        self.alive = True
        self.warm = threading.Event()
        self.closed = 0

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        self.warm.set()
        return CommandResult(exit_code=0, output="")

    def close(self) -> None:
        self.alive = False
        self.closed += 1


@pytest.fixture
def factory() -> Counting:
    return Counting()


@pytest.fixture
def pool(factory: Counting) -> Iterator[WarmPool]:
    opened = WarmPool(factory, 2)
    yield opened
    opened.close()


def fill(pool: WarmPool, count: int = 2) -> None:
    until(f"{count} sandboxes wait", lambda: pool.ready == count)


def test_the_first_of_a_kind_is_made_on_the_spot_and_the_next_has_waited(
    pool: WarmPool, factory: Counting
) -> None:
    assert pool.ready == 0
    assert pool.open(NEEDS) is factory.made[0]
    fill(pool)
    assert pool.open(NEEDS) is factory.made[1]
    assert factory.made[1].warm.is_set()


def test_what_was_taken_is_made_anew(pool: WarmPool, factory: Counting) -> None:
    for _ in range(3):
        pool.open(NEEDS)
        fill(pool)
    assert len({id(sandbox) for sandbox in factory.made}) == 5


def test_each_kind_is_kept_ready(pool: WarmPool) -> None:
    pool.open(NEEDS)
    pool.open(OTHERS)
    fill(pool, 4)
    for needs in (NEEDS, OTHERS):
        sandbox = pool.open(needs)
        assert isinstance(sandbox, Fragile)
        assert sandbox.needs == needs


def test_the_kind_that_was_met_longest_ago_makes_room(
    pool: WarmPool, factory: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool, "_MOST_KINDS", 2)
    kinds = [SandboxNeeds(image=name) for name in "abc"]
    for needs in kinds:
        pool.open(needs)
    until("the last two kinds wait", lambda: [*pool._waiting] == kinds[1:] and pool.ready == 4)
    assert all(each.closed for each in factory.made[1:] if each.needs == kinds[0])


def test_a_sandbox_that_died_waiting_is_never_handed_out(pool: WarmPool, factory: Counting) -> None:
    pool.open(NEEDS)
    fill(pool)
    for sandbox in factory.made[1:]:
        sandbox.alive = False
    assert pool.open(NEEDS) not in factory.made[:3]
    until("the dead are closed", lambda: all(each.closed for each in factory.made[1:3]))


def test_a_sandbox_that_died_waiting_is_replaced_unasked(
    factory: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool, "_LOOK_SECONDS", 0.01)
    pool = WarmPool(factory, 2)
    pool.open(NEEDS)
    fill(pool)
    factory.made[1].alive = False
    until("it is replaced", lambda: len(factory.made) == 4 and pool.ready == 2)
    assert factory.made[1].closed == 1
    pool.close()


def test_a_machine_that_can_make_no_more_says_so_to_the_one_who_asks(
    factory: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool, "_LOOK_SECONDS", 0.01)
    pool = WarmPool(factory, 1)
    pool.open(NEEDS)
    fill(pool, 1)
    factory.broken = True
    pool.open(NEEDS)
    with pytest.raises(SandboxUnavailable, match="no more of them"):
        pool.open(NEEDS)
    factory.broken = False
    fill(pool, 1)
    pool.close()


def test_nothing_of_a_closed_pool_is_left_but_what_was_handed_out(factory: Counting) -> None:
    pool = WarmPool(factory, 3)
    mine = pool.open(NEEDS)
    fill(pool, 3)
    pool.close()
    assert pool.ready == 0
    assert [sandbox.closed for sandbox in factory.made] == [0, 1, 1, 1]
    assert mine.alive


def test_real_sandboxes_from_the_pool_are_new_and_of_their_own(sandboxes: Bubblewrap) -> None:
    pool = WarmPool(sandboxes, 2)
    pool.open(NEEDS).close()
    fill(pool)
    with pool.open(NEEDS) as one, pool.open(NEEDS) as other:
        for sandbox in (one, other):
            result = sandbox.bash("ls -A; echo x > note", deadline_seconds=20)
            assert (result.output, result.restarted) == ("", False)
    pool.close()


def test_a_fresh_sandbox_has_waited_in_the_pool_as_well(sandboxes: Bubblewrap) -> None:
    pool = WarmPool(sandboxes, 2)
    with pool.open(NEEDS) as made_on_the_spot:
        fill(pool)
        (waiting,) = pool._waiting.values()
        known = list(waiting)
        clean = made_on_the_spot.fresh()
        cleaner = clean.fresh()
        assert [clean, cleaner] == known
    assert not any(sandbox.alive for sandbox in known)
    pool.close()


def test_a_real_sandbox_that_was_killed_while_it_waited_is_not_handed_out(
    sandboxes: Bubblewrap,
) -> None:
    pool = WarmPool(sandboxes, 1)
    pool.open(NEEDS).close()
    fill(pool, 1)
    ((waiting,),) = pool._waiting.values()
    assert isinstance(waiting, HeldSandbox)
    assert isinstance(waiting._holder, Holder)
    waiting._holder.kill()
    until("it is dead", lambda: not waiting.alive)
    with pool.open(NEEDS) as sandbox:
        assert sandbox is not waiting
        assert sandbox.bash("echo ok", deadline_seconds=20).output == "ok\n"
    pool.close()
