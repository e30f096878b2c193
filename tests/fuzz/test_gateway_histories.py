"""Clients that go on from what they were answered, and do to it whatever they like."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.cases import SEED, cases
from tests.fuzz.clients import ChatCompletions, Dialect, Message, Messages, Responses, events_of
from tests.fuzz.conftest import MAX_GROWTH_BYTES, HostedGateway, Session

DIALECTS: dict[str, Dialect] = {
    "chat completions": ChatCompletions(),
    "responses": Responses(),
    "messages": Messages(),
}
TOOLS = tuple(
    {"name": name, "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
    for name in ("ls", "cat")
)
STRANGE: tuple[Any, ...] = (None, True, -1, 2**70, 1.5, "", "tool", "\u202e\x00", [], {}, [{}])
DEADLINE_SECONDS = 20.0

asks = st.fixed_dictionaries(
    {
        "tools": st.sampled_from([TOOLS, TOOLS[:1], ()]),
        "stream": st.booleans(),
        "n": st.sampled_from([1, 1, 1, 2]),
        "logprobs": st.booleans(),
        "max_tokens": st.sampled_from([1, 3, 500]),
    }
)
steps = st.lists(
    st.tuples(st.sampled_from(["go on", "go on", "go on", "say", "tell otherwise", "bend"]), asks),
    min_size=1,
    max_size=8,
)


class Client:
    """One conversation, told anew with every request."""

    def __init__(
        self, wire: requests.Session, session: Session, dialect: Dialect, dice: random.Random
    ) -> None:
        self._wire = wire
        self._session = session
        self._dialect = dialect
        self._dice = dice
        self._told = [dialect.user("hi")]
        self.responses = self.tokens = 0

    def take(self, step: str, options: Message) -> None:
        match step:
            case "say":
                self._told.append(self._dialect.user(self._word()))
            case "tell otherwise":
                self._rewrite()
            case "bend":
                self._told = _bent(self._dice, self._told)
            case _:
                self._go_on(options)

    def _go_on(self, options: Message) -> None:
        asked = self._dialect.request(self._told, options)
        reply = self._wire.post(
            self._session.url + self._dialect.path,
            data=msgspec.json.encode(asked),
            headers={"Authorization": f"Bearer {self._session.key}"},
            timeout=DEADLINE_SECONDS,
        )
        if reply.status_code != 200:
            assert reply.status_code == 400, reply.text
            assert reply.json()["error"]["message"]
            assert self._session.key not in reply.text
            self._told = [self._dialect.user("hi")]
            return
        streamed = options["stream"]
        reply.encoding = "utf-8"
        whole = self._dialect.streamed(list(events_of(reply.text))) if streamed else reply.json()
        answer = self._dialect.answer(whole)
        self.responses += len(answer.choices)
        self.tokens += answer.tokens
        self._told = self._told + self._dice.choice(answer.choices)
        called = [call for each in self._told[-4:] for call in self._dialect.calls(each)]
        self._told += [self._dialect.result(call, self._word()) for call in called]
        if not called:
            self._told.append(self._dialect.user(self._word()))

    def _rewrite(self) -> None:
        """Forget, repeat or swap messages, or go back to an earlier one."""
        at = self._dice.randrange(len(self._told))
        head, tail = self._told[:at], self._told[at:]
        self._told = self._dice.choice(
            [head + tail[1:], head + tail[:1] + tail, tail + head, head, tail]
        ) or [self._dialect.user("hi")]

    def _word(self) -> str:
        return self._dice.choice(("go on", "a\nb", "<tool_call>", "<|im_end|>", "", "\U0001f4a9"))


def _bent(dice: random.Random, value: Any) -> Any:
    """The value with one thing in it replaced or removed."""
    if isinstance(value, dict) and value:
        name = dice.choice(sorted(value))
        if dice.random() < 0.2:
            return {each: part for each, part in value.items() if each != name}
        return {**value, name: _bent(dice, value[name])}
    if isinstance(value, list) and value:
        at = dice.randrange(len(value))
        return [*value[:at], _bent(dice, value[at]), *value[at + 1 :]]
    return dice.choice(STRANGE)


@pytest.fixture(scope="module")
def wire() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@pytest.mark.parametrize("dialect", DIALECTS)
def test_whatever_is_done_to_a_conversation_all_that_was_sampled_is_recorded_exactly(
    hosted: HostedGateway, wire: requests.Session, dialect: str
) -> None:
    @seed(SEED)
    @settings(
        max_examples=cases(15),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps, st.integers(0, 2**32))
    def attempt(taken: list[tuple[str, Message]], number: int) -> None:
        session = hosted.open()
        client = Client(wire, session, DIALECTS[dialect], random.Random(number))
        for step, options in taken:
            client.take(step, options)
        recorded = hosted.close(session)
        assert recorded.exact
        assert (recorded.responses, recorded.tokens) == (client.responses, client.tokens)

    attempt()
    before = hosted.resident_bytes()
    attempt()
    assert hosted.resident_bytes() - before < MAX_GROWTH_BYTES
