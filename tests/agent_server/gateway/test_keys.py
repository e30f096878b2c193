"""The key of an agent: it opens the session of its own attempt, until that ends."""

import threading
from collections.abc import Callable, Iterator

import pytest
import requests

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.stages import SharedPolicy
from agent_server.sandbox.bubblewrap import Bubblewrap
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import LLMUnavailable
from rollyard.messages import Outcome
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    Fails,
    NeverAnswers,
    Says,
    assign,
)
from tests.agent_server.gateway.conftest import MakeTask
from tests.agent_server.running import Start
from tests.agent_server.test_command import ASKS, JOB, Products, Remembers, commanded
from tests.waiting import until

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


Opens = Callable[[str], bool]


@pytest.fixture
def opens(gateway: Gateway, make_task: MakeTask, template: ChatTemplate) -> Iterator[Opens]:
    """Whether a key opens any of the gateway's routes, through the port of a session that is open:
    nothing listens on that of one that is over."""
    with gateway.open(make_task(Says(template)), StopSignal()) as session:

        def ask(key: str) -> bool:
            told = {"Authorization": f"Bearer {key}"}
            answers = [requests.get(f"{session.url}/v1/models", headers=told, timeout=20)]
            answers += [
                requests.post(f"{session.url}{path}", json={}, headers=told, timeout=20)
                for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages")
            ]
            assert not any(key in each.text for each in answers)
            return not all(each.status_code == 401 for each in answers)

        yield ask


class WaitsFor(Says):
    """A policy that waits for a word before it answers, and is not to be stopped."""

    def __init__(self, template: ChatTemplate, *responses: str) -> None:
        super().__init__(template, *responses)
        self.asked, self.word = threading.Event(), threading.Event()

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        self.asked.set()
        assert self.word.wait(PATIENCE_SECONDS)
        return super().generate(request, stop)


def test_it_is_dead_before_the_last_request_has_ended(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, opens: Opens
) -> None:
    policy = WaitsFor(template, "late")
    session = gateway.open(make_task(policy), StopSignal())
    told = {"Authorization": f"Bearer {session.key}"}
    url = f"{session.url}/v1/chat/completions"
    answers: list[int] = []

    def ask() -> None:
        answers.append(requests.post(url, json=ASK, headers=told, timeout=20).status_code)

    asking, ending = threading.Thread(target=ask), threading.Thread(target=session.close)
    asking.start()
    assert policy.asked.wait(PATIENCE_SECONDS)
    ending.start()
    until("the key is dead", lambda: not opens(session.key))
    assert asking.is_alive()
    policy.word.set()
    for thread in (asking, ending):
        thread.join(PATIENCE_SECONDS)
    assert answers == [403]


def test_it_opens_its_own_session_alone(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, opens: Opens
) -> None:
    mine, theirs = Says(template, "mine"), Says(template, "theirs")
    with (
        gateway.open(make_task(mine), StopSignal()) as one,
        gateway.open(make_task(theirs), StopSignal()) as other,
    ):
        told = {"Authorization": f"Bearer {one.key}", "x-api-key": other.key}
        url = f"{other.url}/v1/chat/completions"
        said = requests.post(url, json=ASK, headers=told, timeout=20).json()
        assert said["choices"][0]["message"]["content"] == "mine"
        assert not theirs.requests
        for almost in (one.key[:-1], f"{one.key}x", one.key.upper(), "*****"):
            assert not opens(almost)
        one.close()
        assert not opens(one.key)
        assert opens(other.key)


@pytest.mark.parametrize("how", ["cancelled", "killed", "failed"])
def test_it_is_dead_once_its_attempt_has_ended(
    how: str,
    template: ChatTemplate,
    start: Start,
    sandboxes: Bubblewrap,
    gateway: Gateway,
    opens: Opens,
) -> None:
    policies: dict[str, SharedPolicy] = {
        "cancelled": NeverAnswers(),
        "killed": Says(template, "11", "12"),
        "failed": Fails(LLMUnavailable("all LLM servers are away")),
    }
    policy, remembers = policies[how], Remembers(gateway)
    environment = commanded(f"{ASKS}; kill -9 $$")
    running = start(policy, environment, sandboxes=sandboxes, gateway=remembers)
    running.runner.accept(assign(JOB))
    if isinstance(policy, NeverAnswers):
        assert policy.asked.wait(PATIENCE_SECONDS)
        running.runner.cancel(assign(JOB).lease)
    ended = running.result()
    (session,) = remembers.sessions
    assert not opens(session.key)
    assert session.key not in str(ended)


def test_the_next_attempt_has_another_while_the_first_stays_dead(
    template: ChatTemplate, start: Start, sandboxes: Bubblewrap, gateway: Gateway, opens: Opens
) -> None:
    remembers = Remembers(gateway)
    opened: list[bool] = []

    class Looks(Says):
        """A policy that fails at first, and then looks what the keys open."""

        def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
            if len(remembers.sessions) == 1:
                raise LLMUnavailable("all LLM servers are away")
            opened.extend(opens(session.key) for session in remembers.sessions)
            return super().generate(request, stop)

    policy = Looks(template, "11", "12")
    running = start(policy, Products, sandboxes=sandboxes, gateway=remembers)
    outcomes = []
    for attempt in (1, 2):
        running.runner.accept(assign(JOB, attempt=attempt))
        outcomes.append(running.result().outcome)
    assert outcomes == [Outcome.INFRA_FAILED, Outcome.COMPLETED]
    assert opened == [False, True] * 2
