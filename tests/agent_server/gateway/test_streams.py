"""Streams: text comes as it is sampled, is never taken back, and ends as the answer does."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tool_calls.formats import OUR_FORMATS
from agent_server.agents.tool_calls.reasoning import opens_reasoning
from agent_server.control.stop import StopSignal
from agent_server.gateway.dialects.messages import AnthropicMessages
from agent_server.gateway.exchange import Inquiry
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.keep_alive import Reminder
from agent_server.gateway.reading import ResponseReader
from agent_server.gateway.routes import GatewayRoutes
from agent_server.gateway.session import GatewaySession
from agent_server.gateway.telling import Telling
from agent_server.gateway.unfolding import Unfolding
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import LLMUnavailable
from rollyard.messages import ChatMessage, ToolSchema
from tests.agent_server.fakes import PATIENCE_SECONDS, generation
from tests.agent_server.gateway.conftest import Listens, MakeTask

ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99},
}
LS = ToolSchema(name="ls", description="", parameters={"type": "object"})
HI = (ChatMessage(role="user", content="hi"),)


class Murmurs:
    """A policy that says its text token by token, and waits before the last words for the test."""

    context_tokens = 4096

    def __init__(self, template: ChatTemplate, first: str, last: str | Exception) -> None:
        self.go_on = threading.Event()
        self._template = template
        self._first, self._last = first, last

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        assert request.hear is not None
        first = self._template.encode(self._first)
        for token in first:
            request.hear((token,))
        assert self.go_on.wait(PATIENCE_SECONDS)
        if isinstance(self._last, Exception):
            raise self._last
        last = [*self._template.encode(self._last), self._template.end_token_id]
        request.hear(last)
        return generation([*first, *last])


def events(session: GatewaySession, path: str) -> Iterator[dict[str, Any]]:
    """The events of a stream, as they come."""
    headers = {"Authorization": f"Bearer {session.key}"}
    body = {**ASKED[path], "stream": True}
    with requests.post(
        f"{session.url}{path}", json=body, headers=headers, stream=True, timeout=20
    ) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        for line in answer.iter_lines(chunk_size=1):
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))


def text(event: dict[str, Any]) -> str:
    """The text that an event of any dialect tells."""
    if event.get("object") == "chat.completion.chunk":
        return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    delta = event.get("delta", "")
    return str(delta.get("text", "")) if isinstance(delta, dict) else str(delta)


@pytest.mark.parametrize("path", ASKED)
def test_text_comes_while_the_rest_is_sampled(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, path: str
) -> None:
    policy, heard = Murmurs(template, "so far", " so good"), ""
    with gateway.open(make_task(policy), StopSignal()) as session:
        for event in events(session, path):
            heard += text(event)
            if heard == "so far":
                policy.go_on.set()
        trajectory = session.trajectory(truncated=False)
    assert heard == "so far so good"
    assert trajectory.messages[-1].content == "so far so good"
    assert not trajectory.truncated


@pytest.mark.parametrize("path", ASKED)
def test_a_failure_in_the_middle_ends_the_stream_and_the_session(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, path: str
) -> None:
    policy = Murmurs(template, "so far", LLMUnavailable("gone"))
    with gateway.open(make_task(policy), StopSignal()) as session:
        heard = []
        for event in events(session, path):
            heard.append(event)
            policy.go_on.set()
        with pytest.raises(LLMUnavailable):
            session.trajectory(truncated=False)
    error = heard[-1].get("error") or heard[-1]["response"]["error"]
    assert "gone" in error["message"]


def test_a_refusal_before_the_first_text_has_a_status_of_its_own(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate
) -> None:
    policy = Murmurs(template, "", LLMUnavailable("gone"))
    policy.go_on.set()
    caller, path = Listens(), "/v1/chat/completions"
    with gateway.open(make_task(policy), StopSignal()) as session:
        body = json.dumps({**ASKED[path], "stream": True}).encode()
        reply = GatewayRoutes(gateway.session).post(path, session.key, body, caller)
    assert (reply.status, caller.heard) == (503, b"")


@pytest.mark.parametrize(
    ("path", "sign"), [("/v1/chat/completions", b": waiting"), ("/v1/messages", b'{"type":"ping"}')]
)
def test_a_client_that_hears_nothing_is_kept_waiting(
    gateway: Gateway, make_task: MakeTask, template: ChatTemplate, path: str, sign: bytes
) -> None:
    policy, alive = Murmurs(template, "", "at last"), Reminder(0.01)

    class Waits(Listens):
        def send(self, events: bytes) -> None:
            super().send(events)
            if sign in events:
                policy.go_on.set()

        reminded = staticmethod(alive.giving)  # type: ignore[assignment]

    caller = Waits()
    with gateway.open(make_task(policy), StopSignal()) as session:
        body = json.dumps({**ASKED[path], "stream": True}).encode()
        reply = GatewayRoutes(gateway.session).post(path, session.key, body, caller)
    alive.close()
    assert sign in caller.heard
    assert (caller.heard + reply.body).count(b"at last") == 1


def test_a_client_that_reads_nothing_does_not_hold_up_the_signs_of_others() -> None:
    class Reads(Listens):
        def send(self, events: bytes) -> None:
            assert self.takes_more, "it would wait for the client"
            super().send(events)

    caller = Reads()
    body = json.dumps({**ASKED["/v1/messages"], "stream": True}).encode()
    dialect = AnthropicMessages()
    telling = Telling(dialect.events(dialect.read(body)), caller)
    telling.begin(prompt_tokens=3)
    telling.keep_alive()
    caller.takes_more = False
    telling.keep_alive()
    assert caller.heard == b""
    caller.takes_more = True
    telling.keep_alive()
    assert b"ping" in caller.heard


PIECES = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "[THINK]",
            "[/THINK]",
            "<tool_call>",
            "</tool_call>",
            '{"name": "ls", "arguments": {}}',
            "ls()",
            "[",
            "]",
            "{",
            "<",
            "<th",
            "ink>",
            "<|python_tag|>",
            "[TOOL_CALLS]",
            " ",
            "\n",
            "word",
            "\u00e9\U0001f642",
        ]
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(
    pieces=PIECES,
    form=st.sampled_from(sorted(OUR_FORMATS)),
    tools=st.booleans(),
    opened=st.booleans(),
    cut=st.booleans(),
)
def test_what_is_told_is_the_beginning_of_what_is_read(
    template: ChatTemplate, pieces: list[str], form: str, tools: bool, opened: bool, cut: bool
) -> None:
    """Whatever the policy says, in whichever format, token by token."""
    shaped = with_format(template, form)
    reader = ResponseReader(shaped)
    inquiry = Inquiry(messages=HI, tools=(LS,) if tools else ())
    prompt = shaped.encode("<think>" if opened else "hi")
    assert opens_reasoning(shaped.text(prompt)) == opened
    ids = shaped.encode("".join(pieces))
    unfolding = reader.unfolding(inquiry, prompt)
    told = [unfolding.hear((token,)) for token in (*ids, shaped.end_token_id)]
    said = generation([*ids, *([] if cut else [shaped.end_token_id])], "length" if cut else "stop")
    _, response = reader.read(inquiry, prompt, said)
    assert response.reasoning.startswith("".join(piece.reasoning for piece in told))
    assert response.content.startswith("".join(piece.content for piece in told))


def with_format(template: ChatTemplate, form: str) -> ChatTemplate:
    shaped = object.__new__(ChatTemplate)
    shaped.__dict__ |= {**template.__dict__, "tool_calls": OUR_FORMATS[form]}
    return shaped


def test_plain_text_is_told_at_once(template: ChatTemplate) -> None:
    unfolding = Unfolding(template, ("<tool_call>",), opened=False)
    told = [unfolding.hear((token,)).content for token in template.encode("a <b <tool_call>{")]
    assert "".join(told) == "a <b"
    assert told[0] == "a"
