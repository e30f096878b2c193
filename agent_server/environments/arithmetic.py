"""Arithmetic questions with a calculator and one number as the answer.

The policy may call the calculator once a response, `<tool_call>37*48</tool_call>`; a response
without a call is its answer, and ends the episode.
"""

from collections.abc import Mapping
from typing import Any

from agent_server.environments.protocol import Needs, Observation, Response
from agent_server.rewards.exact_match import exact_match
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from agent_server.tools.calculator import calculate
from agent_server.tools.calls import find_call
from agent_server.tools.protocol import ToolError
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage, Prompt


class Arithmetic:
    needs = Needs(sandbox=SandboxNeeds(programs=("bash",)))

    def __init__(self) -> None:
        self._expected = ""
        self._answer: str | None = None
        self._sandbox: Sandbox | None = None

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        question = _text(prompt.instance, "question")
        self._expected = _text(prompt.instance, "answer")
        self._sandbox = sandbox
        return (ChatMessage(role="user", content=question),)

    def step(self, response: Response) -> Observation:
        assert self._sandbox is not None, "start comes first"
        try:
            expression = find_call(response.content)
        except ToolError as error:
            return _tool_says(f"error: {error}")
        if expression is None:
            self._answer = response.content
            return Observation(done=True)
        return _tool_says(calculate(expression, self._sandbox))

    def solve(self) -> None:
        self._answer = self._expected

    def grade(self) -> float:
        return 0.0 if self._answer is None else exact_match(self._answer, self._expected)


def _tool_says(text: str) -> Observation:
    return Observation(messages=(ChatMessage(role="tool", content=text),))


def _text(instance: Mapping[str, Any], field: str) -> str:
    value = instance.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InvalidMessage(
            f"an arithmetic row needs {field!r} as text, got {value!r}",
            fix='a row is {"data_source": "arithmetic", "question": "37*48", "answer": "1776"}',
        )
    return value
