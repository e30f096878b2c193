"""The calls of one conversation are bounded in number and told apart by their ids."""

import json
import re

import pytest

from agent_server.agents.tool_calls.formats import OUR_FORMATS
from agent_server.agents.tool_calls.parser import MAX_CALLS, ResponseParser
from rollyard.messages import ToolSchema

TOOLS = (ToolSchema(name="bash", description=""),)


def mistral(*ids: str) -> str:
    return "[TOOL_CALLS]" + json.dumps([{"name": "bash", "id": call_id} for call_id in ids])


def ids(parser: ResponseParser, text: str) -> list[str]:
    return [call.call_id for call in parser.parse(text).calls]


def test_ids_differ_in_the_whole_conversation() -> None:
    parser = ResponseParser(OUR_FORMATS["hermes"], TOOLS)
    call = '<tool_call>{"name": "bash"}</tool_call>'
    given = [*ids(parser, call + call), *ids(parser, call), *ids(parser, call)]
    assert len(set(given)) == 4
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in given)  # the strictest templates


def test_the_policys_own_id_is_kept_by_which_the_answer_reaches_it() -> None:
    parser = ResponseParser(OUR_FORMATS["mistral"], TOOLS)
    assert ids(parser, mistral("a1B2c3D4e")) == ["a1B2c3D4e"]
    assert ids(parser, "[TOOL_CALLS]bash[CALL_ID]000000000[ARGS]{}") == ["000000000"]
    kimi = ResponseParser(OUR_FORMATS["kimi"], TOOLS)
    written = "<|tool_call_begin|>functions.bash:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert ids(kimi, f"<|tool_calls_section_begin|>{written}") == ["functions.bash:7"]


@pytest.mark.parametrize("second", ["a1B2c3D4e", "", "too long by far", "\u00e9" * 9])
def test_an_id_that_is_taken_or_does_not_fit_is_replaced(second: str) -> None:
    parser = ResponseParser(OUR_FORMATS["mistral"], TOOLS)
    assert ids(parser, mistral("a1B2c3D4e", second)) == ["a1B2c3D4e", "call00001"]


def test_a_new_id_is_none_that_the_policy_took() -> None:
    parser = ResponseParser(OUR_FORMATS["mistral"], TOOLS)
    assert ids(parser, mistral("call00001", "", "")) == ["call00001", "call00002", "call00003"]


def test_calls_beyond_the_limit_are_left_out_and_the_policy_is_told() -> None:
    response = ResponseParser(OUR_FORMATS["mistral"], TOOLS).parse(mistral(*[""] * 1000))
    assert len(response.calls) == MAX_CALLS
    assert response.malformed == (
        f"a response has at most {MAX_CALLS} tool calls; the rest are left out",
    )


def test_a_tools_name_has_a_largest_length() -> None:
    response = ResponseParser(OUR_FORMATS["pythonic"], TOOLS).parse(f"[bash(), {'x' * 129}()]")
    assert [call.name for call in response.calls] == ["bash"]
    assert response.malformed == ("the name of a tool has 1 to 128 characters",)
