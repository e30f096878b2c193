"""Tools answer every call, and what the policy did wrong is an answer."""

from collections.abc import Mapping
from typing import Any

import pytest

from agent_server.environments.protocol import Response
from agent_server.sandbox.protocol import Sandbox, SandboxUnavailable
from agent_server.tools.protocol import ToolError
from agent_server.tools.submit import Submit
from agent_server.tools.toolbox import Answers, Toolbox
from rollyard.messages import ChatMessage, ToolCall, ToolSchema
from tests.agent_server.fakes import SandboxOfNothing


class Upper:
    """A tool that shouts, and refuses what is empty."""

    schema = ToolSchema(
        name="upper",
        description="Write in capitals.",
        parameters={
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    )

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        if not arguments["text"]:
            raise ToolError("there is nothing to write")
        return str(arguments["text"]).upper()


class Broken(Upper):
    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        raise SandboxUnavailable("no sandbox is left")


DONE = {"properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def answer(*calls: ToolCall, malformed: tuple[str, ...] = ()) -> Answers:
    toolbox = Toolbox([Upper(), Submit("done", "Finish.", DONE)])
    return toolbox.answer(Response(text="", calls=calls, malformed=malformed), SandboxOfNothing())


def call(name: str = "upper", call_id: str = "call00001", **arguments: Any) -> ToolCall:
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def test_each_call_is_answered_with_its_id_and_name() -> None:
    answers = answer(call(text="a"), call(call_id="call00002", text="b"))
    assert answers.messages == (
        ChatMessage(role="tool", content="A", tool_call_id="call00001", name="upper"),
        ChatMessage(role="tool", content="B", tool_call_id="call00002", name="upper"),
    )
    assert answers.submitted is None


def test_a_response_without_calls_has_no_answers() -> None:
    assert answer() == Answers()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (call("lower", text="a"), "error: there is no tool 'lower'; the tools are: upper, done"),
        (call(), "error: the call lacks 'text'; upper takes text"),
        (call(text=""), "error: there is nothing to write"),
    ],
)
def test_a_mistake_of_the_policy_is_answered_and_later_calls_are_carried_out(
    wrong: ToolCall, said: str
) -> None:
    first, second = answer(wrong, call(text="b")).messages
    assert (first.content, second.content) == (said, "B")
    assert (first.tool_call_id, first.name) == (wrong.call_id, wrong.name)


def test_a_call_that_could_not_be_read_is_answered_without_an_id() -> None:
    (message,) = answer(malformed=("the tool call is not JSON",)).messages
    assert message == ChatMessage(role="tool", content="error: the tool call is not JSON")


def test_a_submission_ends_the_episode_before_later_calls() -> None:
    answers = answer(call(text="a"), call("done", answer="42"), call(text="b"))
    assert [message.content for message in answers.messages] == ["A"]
    assert answers.submitted == {"answer": "42"}


def test_a_submission_with_wrong_arguments_is_none() -> None:
    answers = answer(call("done", result="42"))
    assert answers.submitted is None
    assert answers.messages[0].content.startswith("error: the call lacks 'answer'")


def test_a_submission_without_arguments_is_one_too() -> None:
    answers = Toolbox([Submit()]).answer(
        Response(text="", calls=(call("submit"),)), SandboxOfNothing()
    )
    assert answers.submitted == {}


def test_a_failure_of_the_machine_is_no_answer() -> None:
    with pytest.raises(SandboxUnavailable):
        Toolbox([Broken()]).answer(Response(text="", calls=(call(text="a"),)), SandboxOfNothing())


def test_the_policy_is_told_of_every_tool() -> None:
    assert [schema.name for schema in Toolbox([Upper(), Submit()]).schemas] == ["upper", "submit"]


def test_two_tools_of_one_name_are_a_mistake_of_the_environment() -> None:
    with pytest.raises(ValueError, match="same name"):
        Toolbox([Upper(), Broken()])
