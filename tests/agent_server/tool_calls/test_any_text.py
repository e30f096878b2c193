"""Whatever a policy writes is read, and what a format renders it reads back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.agents.tool_calls.formats import OUR_FORMATS
from agent_server.agents.tool_calls.parser import MAX_CALLS, ResponseParser
from agent_server.environments.protocol import Response
from rollyard.messages import ToolCall, ToolSchema

# Python's parser warns of a text that it takes all the same.
pytestmark = pytest.mark.filterwarnings("ignore:invalid")

PARAMETERS = {
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "line": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "options": {"type": "object"},
        "names": {"type": "array"},
    }
}
TOOLS = tuple(
    ToolSchema(name=name, description="", parameters=PARAMETERS) for name in ("edit", "look_at.all")
)
Call = tuple[str, dict[str, Any]]
STRUCTURED = [name for name in OUR_FORMATS if name != "bare"]
NOTHING_BESIDE = ("llama3_json", "pythonic")
"""Formats whose calls, without a tag before them, are the whole response."""

plain = st.text(max_size=30)
json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=5,
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": plain,
        "text": plain,
        "line": st.integers(-(2**63), 2**64 - 1),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "options": st.dictionaries(plain, json, max_size=3),
        "names": st.lists(json, max_size=3),
    },
)
calls = st.lists(
    st.tuples(st.sampled_from([tool.name for tool in TOOLS]), arguments), min_size=1, max_size=4
)

MARKS = [
    *("<tool_call>", "</tool_call>", "<function=edit>", "</function>", "<parameter=line>"),
    *("</parameter>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[", "]", "{", "}"),
    *('"', "'", "\\", ",", ":", ";", "(", ")", "=", "edit", '{"name": "edit", ', '"arguments": '),
    *("<|python_start|>", "<|tool_call_end|>", "<think>", "</think>", "[THINK]", "\n", "```json"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *(
        mark + ">"
        for name in ("deepseek", "kimi")
        for mark in OUR_FORMATS[name].render([ToolCall("", "", {})]).split(">")
    ),
]
texts = st.lists(st.sampled_from(MARKS) | st.text(st.characters(codec=None), max_size=9)).map(
    "".join
)


def written(name: str, wanted: list[Call]) -> str:
    numbered = enumerate(wanted, start=1)
    return OUR_FORMATS[name].render(
        [ToolCall(f"call{number:05}", *call) for number, call in numbered]
    )


def read(name: str, text: str) -> Response:
    """The response, which is of bounded size and can be sent."""
    response = ResponseParser(OUR_FORMATS[name], TOOLS).parse(text)
    assert response.text == text
    assert len(response.calls) + len(response.malformed) <= MAX_CALLS + 1
    assert len({call.call_id for call in response.calls}) == len(response.calls)
    msgspec.msgpack.encode(response.calls)
    assert all(len(sentence) < 400 for sentence in response.malformed)
    return response


@given(wanted=calls, said=st.sampled_from(["", "I look.\n"]))
def test_calls_that_a_format_renders_are_read_back(wanted: list[Call], said: str) -> None:
    for name in STRUCTURED:
        beside = "" if name in NOTHING_BESIDE else said
        response = read(name, beside + written(name, wanted))
        assert response.malformed == ()
        assert [(call.name, call.arguments) for call in response.calls] == wanted
        assert response.content == beside.strip()


@given(text=texts)
def test_any_text_is_read(text: str) -> None:
    for name in OUR_FORMATS:
        read(name, text)


@given(wanted=calls, start=st.integers(0, 400), length=st.integers(0, 30), instead=texts)
def test_calls_with_a_part_replaced_are_read(
    wanted: list[Call], start: int, length: int, instead: str
) -> None:
    for name in STRUCTURED:
        whole = written(name, wanted)
        cut = start % (len(whole) + 1)
        read(name, whole[:cut] + instead + whole[cut + length :])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 10_000,
        "<tool_call></tool_call>" * 10_000,
        '<tool_call>"' * 10_000,
        "<tool_call><function=edit>" + "<parameter=a>" * 10_000 + "</function></tool_call>",
        "<tool_call><function=f><parameter=a>" + "</parameter> x" * 10_000,
        "</parameter>" + " " * 100_000,
        "[TOOL_CALLS]" * 10_000,
        "[" * 100_000,
        '{"name": "parameters", "parameters": ' * 10_000,
        "[f(a=" + "[" * 100_000,
        "[f(a=" + "(" * 100_000,
        "[f(a=" + "-" * 100_000 + "1)]",
        "[f(a=" + "[" * 90 + "]" * 90 + ")]",
        "[f(a=1" + "+1" * 50_000 + ")]",
        "[f" + ".f" * 50_000 + "()]",
        "[f" + ".f" * 900 + "()]",
        "[" + "f(a=1)," * 10_000 + "]",
        "[" + "f(a=1)," * 20_000 + "]",
        "[f(a=" + "9" * 10_000 + ")]",
        "<think>" * 10_000,
        "x" * 1_000_000,
    ],
    ids=lambda text: text[:30],
)
def test_hostile_text_is_read(text: str) -> None:
    for name in OUR_FORMATS:
        read(name, text)
