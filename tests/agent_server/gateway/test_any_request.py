"""Whatever a client sends is answered, or refused as its own mistake."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from agent_server.gateway.routes import GatewayRoutes
from llm_servers.generation import Generation, TurnRequest
from rollyard.messages import Limits
from tests.agent_server.fakes import generation
from tests.agent_server.gateway.conftest import Listens, MakeTask

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
WORDS = st.sampled_from(
    [
        "",
        "hi",
        "user",
        "assistant",
        "tool",
        "system",
        "text",
        "function",
        "auto",
        "none",
        "message",
        "tool_use",
        "tool_result",
        "function_call",
        "function_call_output",
        "thinking",
        "{}",
        "<|",
    ]
)
FIELDS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "tool_call_id",
        "id",
        "name",
        "input",
        "function",
        "arguments",
        "tool_use_id",
        "call_id",
        "output",
        "parameters",
        "input_schema",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)
PARTS = st.lists(st.fixed_dictionaries({"type": WORDS | VALUES, "text": VALUES}), max_size=2)
SAID = st.fixed_dictionaries(
    {"role": WORDS, "content": VALUES | PARTS}, optional={"tool_calls": VALUES}
)
REQUESTS = st.fixed_dictionaries(
    {"messages": st.lists(SAID, max_size=3), "input": st.lists(SAID, max_size=3) | VALUES},
    optional={
        "max_tokens": st.sampled_from([1, 9, 2**70, None, -1]),
        "tools": st.lists(
            st.fixed_dictionaries({"name": WORDS, "type": WORDS, "function": VALUES}), max_size=2
        ),
        "tool_choice": VALUES,
        "system": VALUES,
        "instructions": VALUES,
        "n": st.integers(-1, 3),
        "stream": st.booleans(),
        "logprobs": st.booleans(),
        "thinking": VALUES,
        "text": st.fixed_dictionaries({"format": VALUES}),
        "response_format": VALUES,
    },
)


class SaysAnything:
    """A policy that says its prompt's last tokens again."""

    context_tokens = 4096

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        return generation(request.token_ids[-min(request.max_tokens, 5) :], "length")


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=80, deadline=None)
@given(asked=REQUESTS | VALUES, garbled=st.booleans())
def test_nothing_that_is_sent_is_our_failure(
    gateway: Gateway, make_task: MakeTask, path: str, asked: Any, garbled: bool
) -> None:
    try:
        body = msgspec.json.encode(asked)
    except (OverflowError, ValueError):
        body = repr(asked).encode()
    task = make_task(SaysAnything(), Limits(max_turns=9, max_tokens=4000))
    with gateway.open(task, StopSignal()) as session:
        reply = GatewayRoutes(gateway.session).post(
            path, session.key, body[:-1] if garbled else body, Listens()
        )
    assert reply.status in (200, 400), reply.body
    if reply.status == 400:
        assert msgspec.json.decode(reply.body)["error"]["message"]
