"""Jobs taken ahead: made ready while every Slot works, started the moment one is free."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.environments.protocol import Needs
from agent_server.jobs.attempt import Stage
from agent_server.jobs.runner import RunnerSettings
from agent_server.jobs.slots import Crowded, Room, jobs_ahead
from agent_server.rewards.protocol import Rewards
from agent_server.sandbox.protocol import Sandbox
from rollyard.errors import Conflict
from rollyard.messages import ChatMessage, Limits, Outcome, Prompt
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    EchoEnvironment,
    NeverAnswers,
    Says,
    assign,
    make_job,
)
from tests.agent_server.running import ECHO, Start

ONE_SLOT = RunnerSettings(slots=1, ahead=1)


class Announces(EchoEnvironment):
    """Says which of its Jobs are through INIT."""

    def __init__(self, begun: "threading.Semaphore") -> None:
        super().__init__()
        self._begun = begun

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        opening = super().start(prompt, sandbox)
        self._begun.release()
        return opening


@pytest.mark.parametrize(("slots", "ahead"), [(1, 1), (16, 1), (17, 2), (128, 8)])
def test_a_sixteenth_of_the_slots_is_taken_ahead(slots: int, ahead: int) -> None:
    assert jobs_ahead(slots) == ahead


def test_a_job_taken_ahead_is_ready_and_starts_when_a_slot_is_free(start: Start) -> None:
    begun, policy = threading.Semaphore(0), NeverAnswers()
    running = start(policy, lambda: Announces(begun), settings=ONE_SLOT)
    first, second = (assign(make_job(job_id=f"job-{n}", instance=ECHO)) for n in (1, 2))
    running.runner.accept(first)
    running.runner.accept(second)
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE_SECONDS)
    status = running.runner.status("agent-1")
    assert (status.busy, status.ahead) == (1, 1)
    assert set(status.leases) == {first.lease, second.lease}
    assert policy.asked.wait(PATIENCE_SECONDS)
    policy.asked.clear()
    running.runner.cancel(first.lease)
    assert running.result().lease == first.lease
    assert policy.asked.wait(PATIENCE_SECONDS)  # the second one's turn
    running.runner.cancel(second.lease)
    result = running.result()
    assert (result.lease, result.outcome) == (second.lease, Outcome.CANCELLED)
    assert running.runner.status("agent-1").ahead == 0


def test_there_is_room_for_so_many_jobs_and_no_more(start: Start) -> None:
    running = start(NeverAnswers(), settings=ONE_SLOT)
    for number in range(2):
        running.runner.accept(assign(make_job(job_id=f"job-{number}", instance=ECHO)))
    with pytest.raises(Conflict, match="all 1 slots are busy"):
        running.runner.accept(assign(make_job(job_id="job-3", instance=ECHO)))


def test_a_job_that_waits_for_a_slot_can_be_cancelled(start: Start) -> None:
    running = start(NeverAnswers(), settings=ONE_SLOT)
    first, second = (assign(make_job(job_id=f"job-{n}", instance=ECHO)) for n in (1, 2))
    running.runner.accept(first)
    running.runner.accept(second)
    running.runner.cancel(second.lease)
    result = running.result()
    assert (result.lease, result.outcome) == (second.lease, Outcome.CANCELLED)
    assert running.runner.leases() == (first.lease,)


def test_a_job_cancelled_just_before_it_would_wait_for_a_slot_does_not_wait(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(NeverAnswers(), settings=ONE_SLOT)
    running.runner.accept(assign(make_job(job_id="job-1", instance=ECHO)))
    second = assign(make_job(job_id="job-2", instance=ECHO))
    staged = running.metrics.staged

    def cancel_meanwhile(stage: Stage, seconds: float) -> None:
        staged(stage, seconds)
        running.runner.cancel(second.lease)

    monkeypatch.setattr(running.metrics, "staged", cancel_meanwhile)
    running.runner.accept(second)
    result = running.result()
    assert (result.lease, result.outcome) == (second.lease, Outcome.CANCELLED)
    assert running.runner.status("agent-1").ahead == 0


def test_jobs_that_wait_for_a_slot_are_handed_back_the_last_ones_first(start: Start) -> None:
    running = start(NeverAnswers(), settings=RunnerSettings(slots=1, ahead=3))
    jobs = [assign(make_job(job_id=f"job-{n}", instance=ECHO)) for n in range(4)]
    for job in jobs:
        running.runner.accept(job)
    running.runner.park(jobs[2].lease)
    assert running.runner.recall(1).leases == (jobs[3].lease,)
    # What is parked is to go on here, and what has its Slot has begun.
    assert running.runner.recall(9).leases == (jobs[1].lease,)
    ended = {(result.lease, result.outcome) for result in (running.result(), running.result())}
    assert ended == {(jobs[each].lease, Outcome.CANCELLED) for each in (1, 3)}
    assert set(running.runner.leases()) == {jobs[0].lease, jobs[2].lease}


def has_place(room: Room[int], number: int) -> bool:
    try:
        room.wait(number, StopSignal(), 0.0)
    except Crowded:
        return False
    return True


def test_those_that_wait_get_a_slot_in_turn() -> None:
    room: Room[int] = Room(1, 2)
    for number in range(3):
        room.enter(number)
    in_turn = []
    for number in range(3):
        in_turn.append([each for each in range(number, 3) if has_place(room, each)])
        room.leave(number)
    assert in_turn == [[0], [1], [2]]


def test_what_has_its_slot_is_not_withdrawn() -> None:
    room: Room[int] = Room(1, 1)
    room.enter(0)
    room.enter(1)
    assert room.waiters() == (1,)
    assert [room.withdraw(number) for number in (0, 1, 2)] == [False, True, False]
    assert [has_place(room, number) for number in (0, 1)] == [True, False]


def test_a_job_waits_for_a_slot_no_longer_than_it_may_run(start: Start) -> None:
    """It is handed back, uncharged, when every Slot hangs."""
    running = start(NeverAnswers(), settings=ONE_SLOT)
    brief = Limits(job_seconds=0.05)
    running.runner.accept(assign(make_job(job_id="job-1", instance=ECHO)))
    running.runner.accept(assign(make_job(job_id="job-2", instance=ECHO, limits=brief)))
    result = running.result()
    assert (result.lease.job_id, result.outcome) == ("job-2", Outcome.CANCELLED)
    assert result.error == "none of 1 places became free in 0.05 s"


class MeetsInside(EchoEnvironment):
    """Waits in one of its methods until there are two of them."""

    def __init__(self, method: str, inside: "Inside") -> None:
        super().__init__()
        self._method, self._inside = method, inside

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        if self._method == "start":
            self._inside.meet()
        return super().start(prompt, sandbox)

    def grade(self) -> float:
        if self._method == "grade":
            self._inside.meet()
        return super().grade()


class Inside:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pair = threading.Barrier(2)
        self._now = 0
        self.most = 0

    def meet(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._pair.wait(PATIENCE_SECONDS)
        with self._lock:
            self._now -= 1


@pytest.mark.parametrize("method", ["start", "grade"])
def test_so_many_begin_or_are_graded_at_once_and_no_more(
    start: Start, template: ChatTemplate, method: str
) -> None:
    inside, settings = Inside(), RunnerSettings(slots=8, init_at_once=2, eval_at_once=2)
    policy = Says(template, *["bye"] * 8)
    running = start(policy, lambda: MeetsInside(method, inside), settings=settings)
    for number in range(8):
        running.runner.accept(assign(make_job(job_id=f"job-{number}", instance=ECHO)))
    assert {running.result().outcome for _ in range(8)} == {Outcome.COMPLETED}
    assert inside.most == 2


@pytest.mark.parametrize("asked", [Needs(computes_grade=True), Needs(rewards=True)])
def test_no_more_are_graded_here_than_there_are_cpus(
    start: Start, template: ChatTemplate, asked: Needs
) -> None:
    inside, settings = Inside(), RunnerSettings(slots=8, graded_here_at_once=2)

    class Graded(MeetsInside):
        needs = asked

        def __init__(self, *_: Rewards) -> None:
            super().__init__("grade", inside)

    running = start(Says(template, *["bye"] * 8), Graded, settings=settings)
    for number in range(8):
        running.runner.accept(assign(make_job(job_id=f"job-{number}", instance=ECHO)))
    assert {running.result().outcome for _ in range(8)} == {Outcome.COMPLETED}
    assert inside.most == 2


class Holds(EchoEnvironment):
    """Does not come back from `start` before `let_go`."""

    begun = threading.Event()
    let_go = threading.Event()

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self.begun.set()
        self.let_go.wait(PATIENCE_SECONDS)
        return super().start(prompt, sandbox)


@pytest.fixture
def holding() -> Iterator[type[Holds]]:
    Holds.begun.clear()
    Holds.let_go.clear()
    yield Holds
    Holds.let_go.set()


def test_a_job_that_waits_for_its_init_can_be_cancelled(start: Start, holding: type[Holds]) -> None:
    running = start(NeverAnswers(), holding, settings=RunnerSettings(slots=2, init_at_once=1))
    first, second = (assign(make_job(job_id=f"job-{n}", instance=ECHO)) for n in (1, 2))
    running.runner.accept(first)
    assert holding.begun.wait(PATIENCE_SECONDS)
    running.runner.accept(second)
    running.runner.cancel(second.lease)
    result = running.result()
    assert (result.lease, result.outcome) == (second.lease, Outcome.CANCELLED)
    assert running.runner.leases() == (first.lease,)


def test_a_job_that_hangs_in_its_init_keeps_no_other_from_theirs(
    start: Start, template: ChatTemplate, holding: type[Holds]
) -> None:
    kinds = iter([holding, EchoEnvironment])
    settings = RunnerSettings(slots=2, init_at_once=1, init_seconds=0.1, grace_seconds=0.1)
    running = start(Says(template, "bye"), lambda: next(kinds)(), settings=settings)
    running.runner.accept(assign(make_job(job_id="hangs", instance=ECHO)))
    assert holding.begun.wait(PATIENCE_SECONDS)
    running.runner.accept(assign(make_job(job_id="works", instance=ECHO)))
    ended = {result.lease.job_id: result.outcome for result in (running.result(), running.result())}
    assert ended == {"hangs": Outcome.INFRA_FAILED, "works": Outcome.COMPLETED}
    assert running.runner.lost().count == 1


def test_a_server_that_closes_hands_back_what_it_took_ahead(start: Start) -> None:
    running = start(NeverAnswers(), settings=ONE_SLOT)
    leases = set()
    for number in range(2):
        assignment = assign(make_job(job_id=f"job-{number}", instance=ECHO))
        running.runner.accept(assignment)
        leases.add(assignment.lease)
    assert set(running.runner.leases()) == leases
    running.runner.close(PATIENCE_SECONDS)
    assert running.runner.leases() == ()


@given(
    slots=st.integers(1, 3),
    ahead=st.integers(0, 2),
    moves=st.lists(st.tuples(st.sampled_from(["take", "leave"]), st.integers(0, 9))),
)
def test_whatever_comes_and_goes_the_slots_are_kept_busy_in_turn(
    slots: int, ahead: int, moves: list[tuple[str, int]]
) -> None:
    room: Room[int] = Room(slots, ahead)
    inside: list[int] = []
    kept: set[int] = set()
    for number, (move, which) in enumerate(moves):
        if move == "take":
            if len(inside) < slots + ahead:
                room.enter(number)
                inside.append(number)
            else:
                with pytest.raises(Conflict):
                    room.enter(number)
        elif inside:
            # one that waits may leave before its turn
            room.leave(inside.pop(which % len(inside)))
        assert room.busy == min(slots, len(inside))
        assert room.busy + room.waiting == len(inside)
        working = {each for each in inside if has_place(room, each)}
        assert len(working) == room.busy
        assert working >= kept & set(inside), "a Slot was taken from the one that had it"
        waiting = [each for each in inside if each not in working]
        assert not working or not waiting or max(working) < min(waiting)
        kept = working
