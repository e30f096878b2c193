"""The arithmetic environment and its calculator, in a real sandbox."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_server.environments.arithmetic import Arithmetic
from agent_server.registry import our_environments
from agent_server.rewards.exact_match import exact_match
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.held_sandbox import HeldSandbox
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.tools.calculator import calculate
from agent_server.tools.calls import find_call
from agent_server.tools.protocol import ToolError
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, Prompt
from tests.agent_server.fakes import SandboxOfNothing, said

ROW = {"data_source": "arithmetic", "question": "37*48", "answer": "1776"}
PROMPT = Prompt(prompt_id="row", instance=ROW)


def _as_text(read: bytes) -> str:
    return read.decode(errors="surrogateescape")


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[HeldSandbox]:
    opened = sandboxes.open(SandboxNeeds())
    yield opened
    opened.close()


@pytest.fixture
def arithmetic(sandbox: HeldSandbox) -> Arithmetic:
    environment = Arithmetic()
    environment.start(PROMPT, sandbox)
    return environment


def test_the_question_opens_the_conversation(sandbox: HeldSandbox) -> None:
    (message,) = Arithmetic().start(PROMPT, sandbox)
    assert (message.role, message.content) == ("user", "37*48")


def test_a_call_is_answered_by_the_tool(arithmetic: Arithmetic) -> None:
    observation = arithmetic.step(said("<tool_call>37*48</tool_call>"))
    assert not observation.done
    assert [(each.role, each.content) for each in observation.messages] == [("tool", "1776")]


@pytest.mark.parametrize(("answer", "reward"), [("1776", 1.0), (" 1776\n", 1.0), ("1775", 0.0)])
def test_a_response_without_a_call_is_the_answer(
    arithmetic: Arithmetic, answer: str, reward: float
) -> None:
    assert arithmetic.step(said(answer)).done
    assert arithmetic.grade() == reward


def test_no_answer_is_no_reward(arithmetic: Arithmetic) -> None:
    arithmetic.step(said("<tool_call>37*48</tool_call>"))
    assert arithmetic.grade() == 0.0


@pytest.mark.parametrize(
    "response",
    [
        "<tool_call>1+1",
        "1+1</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>1</tool_call><tool_call>2</tool_call>",
        "so <tool_call>1+1</tool_call>",
        "</tool_call>1+1<tool_call>",
    ],
)
def test_a_malformed_call_is_told_to_the_policy(arithmetic: Arithmetic, response: str) -> None:
    with pytest.raises(ToolError):
        find_call(response)
    observation = arithmetic.step(said(response))
    assert not observation.done
    assert observation.messages[0].content.startswith("error: ")


@pytest.mark.parametrize("field", ["question", "answer"])
@pytest.mark.parametrize("value", [None, 7, " "])
def test_a_row_without_a_field_is_refused_by_the_fields_name(
    sandbox: HeldSandbox, field: str, value: Any
) -> None:
    row = {name: kept for name, kept in ROW.items() if name != field}
    if value is not None:
        row |= {field: value}
    with pytest.raises(InvalidMessage, match=f"'{field}'"):
        Arithmetic().start(Prompt(prompt_id="row", instance=row), sandbox)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("37*48", "1776"), ("7-10", "-3"), (" (2 + 3) * 4 ", "20"), ("9/2", "4"), ("-1", "-1")],
)
def test_the_calculator_calculates(sandbox: HeldSandbox, expression: str, value: str) -> None:
    assert calculate(expression, sandbox) == value


@pytest.mark.parametrize(
    "expression",
    ["1/0", "1+", "two plus two", "'", '"; echo 7; "', "$(", "1\x00", "a[$(echo 7 >&2)]", "é"],
)
def test_what_is_no_expression_is_a_short_error(sandbox: HeldSandbox, expression: str) -> None:
    result = calculate(expression, sandbox)
    assert result.startswith("error: ")
    assert len(result) < 64


@pytest.mark.parametrize(
    "expression",
    ["1+" * 70_000 + "1", "(" * 5_000_000, "\ud800", "é" * 5_000_000],
    ids=["140 kB", "deep", "surrogate", "10 MB"],
)
def test_the_calculator_answers_whatever_the_policy_writes(
    sandbox: HeldSandbox, expression: str
) -> None:
    answer = calculate(expression, sandbox)
    assert answer == "70001" or answer.startswith("error: ")
    assert calculate("1+1", sandbox) == "2"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(expression=st.text(st.characters(codec=None)) | st.binary().map(_as_text))
def test_any_text_is_an_expression_or_an_error_for_the_policy(
    sandbox: HeldSandbox, expression: str
) -> None:
    answer = calculate(expression, sandbox)
    assert re.fullmatch(r"-?[0-9]+|error: [a-z ]+", answer)


def test_an_expression_that_runs_a_command_runs_it_in_the_sandbox(
    sandbox: HeldSandbox,
) -> None:
    calculate("a[$(touch escaped)]", sandbox)
    assert sandbox.run(["/bin/ls"], deadline_seconds=5).output == "escaped\n"


def test_exact_match_ignores_blanks_around_and_nothing_else() -> None:
    assert exact_match(" 7 ", "7") == 1.0
    assert exact_match("7.0", "7") == 0.0
    assert exact_match("07", "7") == 0.0


def test_the_environment_is_found_by_its_name() -> None:
    opening = our_environments()["arithmetic"].make().start(PROMPT, SandboxOfNothing())
    assert opening.messages == (ChatMessage(role="user", content="37*48"),)
