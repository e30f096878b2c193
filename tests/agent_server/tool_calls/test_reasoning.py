"""Reasoning is told apart from what the policy says, and holds no calls."""

import pytest

from agent_server.agents.tool_calls.formats import OUR_FORMATS
from agent_server.agents.tool_calls.parser import ResponseParser
from agent_server.agents.tool_calls.reasoning import opens_reasoning
from rollyard.messages import ToolSchema

CALL = '<tool_call>{"name": "bash"}</tool_call>'
BASH = ToolSchema(name="bash", description="")


@pytest.mark.parametrize(
    ("text", "in_reasoning", "reasoning", "content"),
    [
        ("<think>\nIt is 7.\n</think>\n\n7", False, "It is 7.", "7"),
        ("\n<think></think>7", False, "", "7"),
        ("[THINK]It is 7.[/THINK]7", False, "It is 7.", "7"),
        ("It is 7.\n</think>\n\n7", True, "It is 7.", "7"),
        ("<think>It is 7.</think>7", True, "It is 7.", "7"),
        ("It may be 7, or", True, "It may be 7, or", ""),
        ("<think>It may be 7, or", False, "It may be 7, or", ""),
        ("7", False, "", "7"),
        ("the tag </think>", False, "", "the tag </think>"),
        ("a <think> in the middle", False, "", "a <think> in the middle"),
        ("one</think>two</think>", True, "one", "two</think>"),
        ("one[/THINK]two</think>", True, "one", "two</think>"),
        ("[THINK]one</think>two[/THINK]three", True, "one</think>two", "three"),
    ],
)
def test_reasoning_ends_where_it_is_closed(
    text: str, in_reasoning: bool, reasoning: str, content: str
) -> None:
    response = ResponseParser(OUR_FORMATS["hermes"], ()).parse(text, in_reasoning=in_reasoning)
    assert (response.reasoning, response.content, response.text) == (reasoning, content, text)


def test_a_call_in_reasoning_is_none() -> None:
    parser = ResponseParser(OUR_FORMATS["hermes"], [BASH])
    assert parser.parse(f"<think>{CALL}</think>Done.").calls == ()
    assert parser.parse(f"{CALL}", in_reasoning=True).calls == ()
    assert len(parser.parse(f"<think>I could.</think>{CALL}").calls) == 1


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("[/INST][THINK]", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
    ],
)
def test_a_prompt_may_open_the_reasoning(prompt: str, opens: bool) -> None:
    assert opens_reasoning(prompt) is opens
