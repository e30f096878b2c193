"""Sessions: everything that reaches an attempt reaches its requests, and nothing outlives it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.resumable import Resumable
from agent_server.control.deadline import Alarms, Deadline
from agent_server.control.parking import Parking
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.gateway.exchange import (
    ContextExceeded,
    Inquiry,
    SessionOver,
    TooManyRequests,
    TurnsExhausted,
)
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.session import MAX_AT_ONCE, GatewaySession, NeverAsked
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import DeadlineExceeded, LLMUnavailable, Unauthorized
from rollyard.messages import ChatMessage, Limits, Sampling
from tests.agent_server.fakes import PATIENCE_SECONDS, Fails, NeverAnswers, Says, generation
from tests.agent_server.gateway.conftest import MakeTask

HI = (ChatMessage(role="user", content="hi"),)
ASK = Inquiry(messages=HI)
MORE = ChatMessage(role="user", content="more")


def ask(session: GatewaySession, inquiry: Inquiry = ASK) -> str:
    return session.respond(inquiry, StopSignal()).choices[0].content


class Waits:
    """A policy that says one word, and then waits until it is stopped."""

    context_tokens = 4096

    def __init__(self, template: ChatTemplate, waiting: int) -> None:
        self.all_wait = threading.Semaphore(0)
        self._word = tuple(template.encode("word"))
        self._waiting = waiting
        self.requests: list[TurnRequest] = []

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        self.requests.append(request)
        if len(self.requests) > self._waiting:
            return generation([*self._word, request.stop_token_ids[0]], version=2)
        self.all_wait.release()
        stop.wait(PATIENCE_SECONDS)
        if stop.reason is StopReason.CANCELLED:
            raise Stopped(stop.reason)
        return generation(self._word, "abort", version=1)


class Announces(Deadline):
    """A deadline that announces that its clock is held."""

    def __init__(self, alarms: Alarms, held: threading.Event) -> None:
        super().__init__(alarms, "t", (30.0, lambda: None))
        self._held = held

    @contextmanager
    def held(self) -> Iterator[None]:
        with super().held():
            self._held.set()
            yield


def test_a_conversation_is_recorded_as_one_trace(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Says(template, "yes", "no", version=3)
    with gateway.open(make_task(policy), StopSignal()) as session:
        said = ChatMessage(role="assistant", content=ask(session))
        answer = session.respond(Inquiry(messages=(*HI, said, MORE)), StopSignal())
        trajectory = session.trajectory(truncated=False)
    assert [choice.content for choice in answer.choices] == ["no"]
    assert not trajectory.truncated
    assert trajectory.earlier == ()
    assert answer.prompt_tokens == trajectory.turns[1].start
    assert [list(each.token_ids) for each in policy.requests] == [
        list(trajectory.token_ids[: turn.start]) for turn in trajectory.turns
    ]
    assert [each.min_version for each in policy.requests] == [0, 3]


def test_a_session_ends_with_its_key(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    with gateway.open(make_task(Says(template, "yes")), StopSignal()) as session:
        assert gateway.session(session.key) is session
    with pytest.raises(Unauthorized, match="opens no session"):
        gateway.session(session.key)
    with pytest.raises(SessionOver):
        ask(session)


@pytest.mark.parametrize("who", ["job", "session", "client"])
def test_a_request_under_way_is_stopped(gateway: Gateway, make_task: MakeTask, who: str) -> None:
    policy, job, client = NeverAnswers(), StopSignal(), StopSignal()
    with ThreadPoolExecutor(1) as other, gateway.open(make_task(policy), job) as session:
        asked = other.submit(session.respond, ASK, client)
        assert policy.asked.wait(PATIENCE_SECONDS)
        match who:
            case "job":
                job.stop(StopReason.CANCELLED)
            case "client":
                client.stop(StopReason.CANCELLED)
            case "session":
                session.close()
                assert asked.done()
        with pytest.raises(SessionOver):
            asked.result(PATIENCE_SECONDS)
        with pytest.raises(NeverAsked):
            session.trajectory(truncated=False)


def test_what_was_sampled_when_time_ran_out_is_kept(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy, job = Waits(template, waiting=1), StopSignal()
    with ThreadPoolExecutor(1) as other, gateway.open(make_task(policy), job) as session:
        asked = other.submit(ask, session)
        assert policy.all_wait.acquire(timeout=PATIENCE_SECONDS)
        job.stop(StopReason.OUT_OF_TIME)
        session.close()
        with pytest.raises(SessionOver):
            asked.result(PATIENCE_SECONDS)
        trajectory = session.trajectory(truncated=False)
    assert trajectory.truncated
    assert [turn.finish_reason for turn in trajectory.turns] == ["abort"]


def test_time_that_ran_out_before_any_response_is_no_trajectory(
    gateway: Gateway, make_task: MakeTask
) -> None:
    job = StopSignal()
    with gateway.open(make_task(NeverAnswers()), job) as session:
        job.stop(StopReason.OUT_OF_TIME)
        with pytest.raises(DeadlineExceeded, match="one response"):
            session.trajectory(truncated=True)


@pytest.mark.parametrize("asked_before", [True, False])
def test_whoever_is_out_of_time_hears_of_it_when_the_session_ends(
    gateway: Gateway, make_task: MakeTask, asked_before: bool
) -> None:
    policy, job = NeverAnswers(), StopSignal()
    with ThreadPoolExecutor(1) as other, gateway.open(make_task(policy), job) as session:
        if asked_before:
            asked = other.submit(ask, session)
            assert policy.asked.wait(PATIENCE_SECONDS)
            job.stop(StopReason.OUT_OF_TIME)
        else:
            job.stop(StopReason.OUT_OF_TIME)
            asked = other.submit(ask, session)
        with pytest.raises(TimeoutError):
            asked.result(0.2)
        session.close()
        with pytest.raises(SessionOver):
            asked.result(PATIENCE_SECONDS)


def test_a_failure_ends_the_session_and_is_never_a_trajectory(
    gateway: Gateway, make_task: MakeTask
) -> None:
    with gateway.open(make_task(Fails(LLMUnavailable("gone"))), StopSignal()) as session:
        for _ in range(2):
            with pytest.raises(LLMUnavailable, match="gone"):
                ask(session)
        with pytest.raises(LLMUnavailable, match="gone"):
            session.trajectory(truncated=False)


def test_parallel_responses_are_parked_and_go_on_together(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    """Each goes on from its own tokens, under the weights that are served then."""
    policy, parking = Waits(template, waiting=3), Parking(max_seconds=60)
    alarms, stands = Alarms(), threading.Event()
    deadline = Announces(alarms, stands)
    deadline.start()
    task = make_task(Resumable(policy, parking, deadline))
    with ThreadPoolExecutor(1) as other, gateway.open(task, StopSignal()) as session:
        asked = other.submit(session.respond, Inquiry(messages=HI, choices=3), StopSignal())
        for _ in range(3):
            assert policy.all_wait.acquire(timeout=PATIENCE_SECONDS)
        parking.park()
        assert stands.wait(PATIENCE_SECONDS)
        parking.resume()
        answer = asked.result(PATIENCE_SECONDS)
        trajectory = session.trajectory(truncated=False)
    deadline.stop()
    alarms.close()
    assert [choice.content for choice in answer.choices] == ["wordword"] * 3
    assert not parking.standing
    for sequence in trajectory.sequences:
        assert [span.version for span in sequence.weight_spans] == [1, 2]


def test_a_limit_refuses_a_request_and_truncates_the_trajectory(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    task = make_task(Says(template, "yes"), Limits(max_turns=1, max_tokens=200))
    with gateway.open(task, StopSignal()) as session:
        ask(session)
        assert not session.trajectory(truncated=False).truncated
        with pytest.raises(TurnsExhausted, match="limit of 1 turns"):
            ask(session)
        assert session.trajectory(truncated=False).truncated


def test_a_client_may_go_on_with_a_shorter_conversation(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    task = make_task(Says(template, "yes", "no"), Limits(max_turns=4, max_tokens=60))
    long = Inquiry(messages=(ChatMessage(role="user", content="long " * 60),))
    with gateway.open(task, StopSignal()) as session:
        ask(session)
        with pytest.raises(ContextExceeded, match="limit is 60"):
            ask(session, long)
        assert session.trajectory(truncated=False).truncated
        ask(session)
        assert not session.trajectory(truncated=False).truncated


def test_a_session_waits_for_so_many_responses_at_once(
    gateway: Gateway, make_task: MakeTask
) -> None:
    task = make_task(NeverAnswers(), Limits(max_turns=1000, max_tokens=200))
    with gateway.open(task, StopSignal()) as session, pytest.raises(TooManyRequests):
        ask(session, Inquiry(messages=HI, choices=MAX_AT_ONCE + 1))


@pytest.mark.parametrize(("wanted", "allowed"), [(None, 64), (9, 9), (900, 64)])
def test_a_client_may_want_shorter_responses_than_the_job(
    gateway: Gateway,
    make_task: MakeTask,
    template: ChatTemplate,
    wanted: int | None,
    allowed: int,
) -> None:
    policy = Says(template, "yes")
    with gateway.open(make_task(policy), StopSignal()) as session:
        ask(session, Inquiry(messages=HI, max_tokens=wanted))
    assert policy.requests[0].max_tokens == allowed
    assert policy.requests[0].sampling == Sampling(max_response_tokens=64)
