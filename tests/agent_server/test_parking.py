"""Parked Jobs: they stand still, keep what they hold, and go on as if nothing had happened."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.resumable import Resumable
from agent_server.control.deadline import Alarms, Deadline
from agent_server.control.parking import ParkedTooLong, Parking
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.environments.protocol import Observation, Response
from agent_server.jobs import runner
from agent_server.jobs.runner import RunnerSettings
from agent_server.sandbox.protocol import Sandbox
from llm_servers.dialects.vllm_tokens import VLLM_TOKENS
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import ChatMessage, Limits, Outcome, Prompt, Sampling, Trajectory
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    EchoEnvironment,
    NeverAnswers,
    Recites,
    Says,
    assign,
    generation,
    make_job,
)
from tests.agent_server.running import ECHO, Running, Start
from tests.agent_server.undisturbed import assert_the_same

ASSIGNMENT = assign(make_job(instance=ECHO))
LEASE = ASSIGNMENT.lease


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts how often a Job of a runner has begun to stand still."""
    begun = threading.Semaphore(0)

    class Announces(Deadline):
        @contextmanager
        def held(self) -> Iterator[None]:
            with super().held():
                begun.release()
                yield

    monkeypatch.setattr(runner, "Deadline", Announces)
    return begun


def stands(parked: threading.Semaphore) -> bool:
    return parked.acquire(timeout=PATIENCE_SECONDS)


def test_a_response_that_was_interrupted_goes_on_from_its_own_tokens(
    start: Start, undisturbed: Trajectory, parked: threading.Semaphore
) -> None:
    policy = Recites(undisturbed.token_ids)
    running = start(policy)
    policy.before = lambda drawn: running.runner.park(LEASE) if drawn == 2 else None
    running.runner.accept(ASSIGNMENT)
    assert stands(parked)
    status = running.runner.status("agent-1")
    assert (status.parked, status.busy, status.leases) == (1, 1, (LEASE,))
    assert "rollyard_agent_jobs_parked 1.0" in running.metrics.text()
    policy.version = 1
    running.runner.resume(LEASE)
    result = running.result()
    trajectory = assert_the_same(result, undisturbed)
    first = trajectory.turns[0].start
    assert [request.max_tokens for request in policy.requests[:2]] == [64, 62]
    assert list(policy.requests[1].token_ids) == list(trajectory.token_ids[: first + 2])
    old, new = trajectory.weight_spans[:2]
    assert (old.version, old.start, old.end) == (0, first, first + 2)
    assert (new.version, new.start, new.end) == (1, first + 2, trajectory.turns[0].end)
    assert result.timings.parked_seconds > 0
    assert running.runner.status("agent-1").parked == 0


class ParksIn(EchoEnvironment):
    """Is told to park when one of its methods is first called, and does its work all the same."""

    def __init__(self, method: str, running: list[Running]) -> None:
        super().__init__()
        self._method, self._running = method, running

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self._park("start")
        return super().start(prompt, sandbox)

    def step(self, response: Response) -> Observation:
        self._park("step" if response.text != "bye" else "last step")
        return super().step(response)

    def grade(self) -> float:
        self._park("grade")
        return super().grade()

    def _park(self, method: str) -> None:
        if method == self._method:
            self._method = ""
            self._running[0].runner.park(LEASE)


@pytest.mark.parametrize(("method", "asked"), [("start", 0), ("step", 1)])
def test_what_is_under_way_is_finished_before_a_job_stands_still(
    start: Start, undisturbed: Trajectory, parked: threading.Semaphore, method: str, asked: int
) -> None:
    policy, running = Recites(undisturbed.token_ids), list[Running]()
    running.append(start(policy, lambda: ParksIn(method, running)))
    running[0].runner.accept(ASSIGNMENT)
    assert stands(parked)
    assert len(policy.requests) == asked
    assert running[0].runner.status("agent-1").stages["run"] == 1
    running[0].runner.park(LEASE)  # once more changes nothing
    running[0].runner.resume(LEASE)
    assert_the_same(running[0].result(), undisturbed)


@pytest.mark.parametrize("method", ["last step", "grade"])
def test_a_job_that_asks_for_no_more_tokens_is_finished(
    start: Start, undisturbed: Trajectory, method: str
) -> None:
    running = list[Running]()
    running.append(start(Recites(undisturbed.token_ids), lambda: ParksIn(method, running)))
    running[0].runner.accept(ASSIGNMENT)
    result = running[0].result()
    assert_the_same(result, undisturbed)
    assert result.timings.parked_seconds == 0


def test_a_policy_that_gave_nothing_is_asked_the_same_again(
    start: Start, undisturbed: Trajectory, parked: threading.Semaphore
) -> None:
    policy = Recites(undisturbed.token_ids)
    running = start(policy)
    policy.before = lambda drawn: running.runner.park(LEASE) if drawn == 0 else None
    running.runner.accept(ASSIGNMENT)
    assert stands(parked)
    running.runner.resume(LEASE)
    assert_the_same(running.result(), undisturbed)
    first, second = (VLLM_TOKENS.generate(each, "") for each in policy.requests[:2])
    assert first == second


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_parked_job_can_be_stopped(
    start: Start, undisturbed: Trajectory, parked: threading.Semaphore, end: str
) -> None:
    policy, running = Recites(undisturbed.token_ids), list[Running]()
    running.append(start(policy, lambda: ParksIn("step", running)))
    running[0].runner.accept(ASSIGNMENT)
    assert stands(parked)
    if end == "cancel":
        running[0].runner.cancel(LEASE)
    else:
        assert running[0].runner.leases() == (LEASE,)
        running[0].runner.close(PATIENCE_SECONDS)
    result = running[0].result()
    assert (result.outcome, result.trajectory) == (Outcome.CANCELLED, None)
    assert running[0].runner.status("agent-1").busy == 0, "its thread still stands"


def test_a_job_that_is_parked_for_too_long_is_given_back(
    start: Start, undisturbed: Trajectory
) -> None:
    policy, running = Recites(undisturbed.token_ids), list[Running]()
    running.append(start(policy, lambda: ParksIn("step", running)))
    limits = Limits(max_turns=4, max_tokens=400, parked_seconds=0.02)
    running[0].runner.accept(assign(make_job(instance=ECHO, limits=limits)))
    result = running[0].result()
    assert (result.outcome, result.reward) == (Outcome.CANCELLED, None)
    assert result.error == "parked for longer than 0.02 s"
    assert running[0].runner.leases() == ()


def test_a_job_taken_ahead_that_is_parked_waits_for_its_slot_and_then_stands_still(
    start: Start, undisturbed: Trajectory, parked: threading.Semaphore
) -> None:
    policy = NeverAnswers()
    running = start(policy, settings=RunnerSettings(slots=1, ahead=1))
    running.runner.accept(assign(make_job(job_id="first", instance=ECHO)))
    assert policy.asked.wait(PATIENCE_SECONDS)
    policy.asked.clear()
    running.runner.accept(ASSIGNMENT)
    running.runner.park(LEASE)
    running.runner.cancel(assign(make_job(job_id="first")).lease)
    assert running.result().lease.job_id == "first"
    assert stands(parked)
    assert not policy.asked.is_set()
    running.runner.resume(LEASE)
    assert policy.asked.wait(PATIENCE_SECONDS)


def test_orders_for_a_lease_that_is_not_here_are_ignored(
    start: Start, template: ChatTemplate
) -> None:
    running = start(Says(template))
    running.runner.park(LEASE)
    running.runner.resume(LEASE)
    assert running.runner.status("agent-1").parked == 0


def test_an_answer_that_a_push_has_overtaken_does_not_count() -> None:
    parking = Parking(1.0)
    parking.park(as_of=1.0)
    assert parking.order.reason is StopReason.PARKED
    parking.resume()
    parking.park(as_of=2.0)
    assert parking.order.reason is None
    parking.park(as_of=float("inf"))
    assert parking.order.reason is StopReason.PARKED


def test_the_time_a_job_stands_still_is_no_time_of_its_run(
    start: Start, undisturbed: Trajectory, parked: threading.Semaphore
) -> None:
    """Each second is one or the other, so that the two together are not more than went by."""
    policy = Recites(undisturbed.token_ids)
    running = start(policy)
    policy.before = lambda drawn: running.runner.park(LEASE) if drawn == 2 else None
    began = time.monotonic()
    running.runner.accept(ASSIGNMENT)
    assert stands(parked)
    threading.Event().wait(0.3)
    running.runner.resume(LEASE)
    timings = running.result().timings
    assert timings.parked_seconds >= 0.3
    assert timings.run_seconds + timings.parked_seconds <= time.monotonic() - began


REQUEST = TurnRequest(
    trajectory="t",
    group="g",
    token_ids=(1, 2),
    sampling=Sampling(),
    max_tokens=3,
    stop_token_ids=(9,),
)


@pytest.fixture
def until() -> Iterator[Deadline]:
    """A deadline that is far away."""
    alarms = Alarms()
    far_away = Deadline(alarms, "run", (PATIENCE_SECONDS, lambda: None))
    far_away.start()
    yield far_away
    alarms.close()


class Interrupted:
    """Is parked after one token, and then stopped."""

    def __init__(self, parking: Parking, stop: StopSignal, reason: StopReason) -> None:
        self._parking, self._stop, self._reason = parking, stop, reason

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        self._parking.park()
        self._stop.stop(self._reason)
        return generation([3], "abort")


class AnnouncesWaits(StopSignal):
    """A stop signal that announces that something waits and would be interrupted by it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Semaphore(0)

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        with super().interrupting(interrupt):
            self.waits.release()
            yield


def test_every_response_that_stands_still_is_woken(until: Deadline) -> None:
    parking, stop = Parking(max_seconds=PATIENCE_SECONDS), AnnouncesWaits()
    parking.park()
    with ThreadPoolExecutor(3) as responses:
        woken = [responses.submit(parking.stand, stop, until) for _ in range(3)]
        for _ in woken:
            assert stop.waits.acquire(timeout=PATIENCE_SECONDS)
        parking.resume()
        for each in woken:
            each.result(PATIENCE_SECONDS / 2)
    assert not parking.standing


def test_time_that_runs_out_in_a_parked_response_keeps_what_was_said(until: Deadline) -> None:
    parking, stop = Parking(1.0), StopSignal()
    policy = Interrupted(parking, stop, StopReason.OUT_OF_TIME)
    said = Resumable(policy, parking, until).generate(REQUEST, stop)
    assert (said.token_ids, said.finish_reason) == ((3,), "abort")


def test_a_cancelled_response_is_not_kept(until: Deadline) -> None:
    parking, stop = Parking(1.0), StopSignal()
    policy = Interrupted(parking, stop, StopReason.CANCELLED)
    with pytest.raises(Stopped):
        Resumable(policy, parking, until).generate(REQUEST, stop)


def test_a_wait_that_is_too_long_is_named(until: Deadline) -> None:
    parking = Parking(0.001)
    parking.park()
    with pytest.raises(ParkedTooLong, match="parked for longer than"):
        parking.stand(StopSignal(), until)
    assert not parking.standing
    assert parking.seconds > 0


@pytest.mark.parametrize(("token", "reason"), [(9, "stop"), (3, "length")])
def test_a_response_that_was_interrupted_at_its_very_end_is_finished(
    until: Deadline, token: int, reason: str
) -> None:
    class EndsAsItIsParked:
        def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
            parking.park()
            return generation([3, 3, token], "abort")

    parking = Parking(1.0)
    said = Resumable(EndsAsItIsParked(), parking, until).generate(REQUEST, StopSignal())
    assert (said.token_ids, said.finish_reason) == ((3, 3, token), reason)
