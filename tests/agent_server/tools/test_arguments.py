"""Arguments of calls are checked against the schema of the tool."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.tools.arguments import check_arguments
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolSchema

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "mode": {"enum": ["r", "w", 1]},
        "ratio": {"type": ["number", "null"], "maximum": 1},
        "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
        "size": {"anyOf": [{"type": "integer"}, {"const": "all"}]},
    },
    "required": ["path"],
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=99),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)


def check(parameters: dict[str, Any], **arguments: Any) -> None:
    check_arguments(arguments, ToolSchema(name="t", description="", parameters=parameters))


def mistake_in(arguments: dict[str, Any]) -> str:
    """What is said of the arguments; empty if they fit."""
    try:
        check(PARAMETERS, **arguments)
    except ToolError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"lines": []},
        {"lines": [1, 2]},
        {"mode": "w"},
        {"mode": 1},
        {"ratio": None},
        {"ratio": 0},
        {"options": {"deep": True, "of": "any kind"}},
        {"size": 7},
        {"size": "all"},
    ],
)
def test_arguments_that_fit_are_taken(more: dict[str, Any]) -> None:
    check(PARAMETERS, path="a", **more)


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        ({"path": 7}, "'path' must be of the type string, not 7"),
        ({"lines": "1"}, "'lines' must be of the type array, not '1'"),
        ({"lines": [1, 1.5]}, r"'lines'\[1\] must be of the type integer, not 1.5"),
        ({"lines": [0]}, r"'lines'\[0\] must be at least 1, not 0"),
        ({"lines": [True]}, "must be of the type integer, not True"),
        ({"mode": "x"}, "'mode' must be one of 'r', 'w', 1, not 'x'"),
        ({"mode": True}, "'mode' must be one of"),
        ({"ratio": 2}, "'ratio' must be at most 1, not 2"),
        ({"ratio": "2"}, "'ratio' must be of the type number or null"),
        ({"options": {"deep": 1}}, "'deep' must be of the type boolean"),
        ({"size": "some"}, "'size' fits none of the forms"),
        ({"color": "red"}, "the call has no 'color'; t takes path, lines"),
    ],
)
def test_the_first_that_does_not_fit_is_named(more: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ToolError, match=mistake):
        check(PARAMETERS, **{"path": "a", **more})


def test_a_required_argument_is_missed() -> None:
    with pytest.raises(ToolError, match="the call lacks 'path'"):
        check(PARAMETERS)


def test_a_tool_may_take_arguments_that_it_does_not_name() -> None:
    check({"additionalProperties": {"type": "string"}}, anything="a")
    with pytest.raises(ToolError, match="'anything' must be of the type string"):
        check({"additionalProperties": {"type": "string"}}, anything=1)


def test_a_tool_without_parameters_takes_none() -> None:
    check({})
    with pytest.raises(ToolError, match="takes no arguments"):
        check({}, command="ls")


@given(arguments=st.dictionaries(st.sampled_from([*PARAMETERS["properties"], "other"]), JSON))
def test_any_arguments_fit_or_are_told_in_a_short_sentence(arguments: dict[str, Any]) -> None:
    assert len(mistake_in(arguments)) < 400
