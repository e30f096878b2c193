"""Environments in which somebody else's agent works: its command, its task as a file, and the file
that is its answer.

This is the usual case. An environment that prepares or grades something else, as `swe` does,
returns `Opening(command=...)` from a `start` of its own.
"""

from typing import ClassVar

from agent_server.environments import public_rows
from agent_server.environments.protocol import (
    EnvironmentFailed,
    Needs,
    Observation,
    Opening,
    Response,
)
from agent_server.rewards.exact_match import exact_match
from agent_server.sandbox.protocol import FileRefused, Sandbox, SandboxNeeds
from rollyard.errors import InvalidMessage
from rollyard.messages import Grade, Prompt

MAX_ANSWER_BYTES = 1 << 20
_SHOWN_CHARACTERS = 200


class BlackBox:
    """The base of such an environment. An answer is right if it is the row's own, blanks around it
    aside."""

    needs: ClassVar[Needs] = Needs(sandbox=SandboxNeeds(), agent="command")
    command: ClassVar[str]
    """Command line of the agent, which bash runs in the workspace."""
    task: ClassVar[str]
    """Text of the task file, with the names of the row's fields in braces."""
    task_file: ClassVar[str] = "task.md"
    answer_file: ClassVar[str] = "answer.txt"

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self.sandbox = sandbox
        self.expected = _text(public_rows.ground_truth(prompt.instance))
        try:
            text = self.task.format_map(prompt.instance)
        except KeyError as error:
            raise InvalidMessage(
                f"the row has no field {error}, which its task names",
                fix=f"the task is: {self.task[:_SHOWN_CHARACTERS]}",
            ) from error
        sandbox.write(self.task_file, text.encode())
        return Opening(messages=(), command=self.command)

    def step(self, response: Response) -> Observation:
        raise EnvironmentFailed(
            "the agent of this environment is a program, which answers by itself",
            fix="let it talk with a model: `rollyard env try --model DIRECTORY --llm-server URL`",
        )

    def solve(self) -> None:
        self.sandbox.write(self.answer_file, self.expected.encode())

    def grade(self) -> Grade:
        try:
            left = self.sandbox.read(self.answer_file, most_bytes=MAX_ANSWER_BYTES)
        except FileRefused as error:
            return Grade(reward=0.0, reason=f"the agent left no answer: {error.message}")
        answer = left.decode(errors="replace").strip()
        reward = exact_match(answer, self.expected)
        return Grade(reward=reward, reason=f"answered {answer[:_SHOWN_CHARACTERS]!r}")


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise InvalidMessage(f"the row's answer must be text or a number, got {given!r}")
    return given
