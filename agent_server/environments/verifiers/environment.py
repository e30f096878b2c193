"""Environments of the `verifiers` library, unchanged: each plays its rollout as a program in the
sandbox, and its own rubric is the grader.

A row is `{"data_source": "verifiers", "env": "PACKAGE", "args": {...}, "input": {...}}`, with what
`load_environment` is given and one row of the environment's dataset. The library and the packages
are in the tool environment `verifiers`.

What the policy has its tools run in the sandbox could write files there. The program therefore
signs its result with a key that is this episode's alone; whatever else stands in that file is worth
nothing.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from agent_server.environments.protocol import (
    EnvironmentFailed,
    Needs,
    Observation,
    Opening,
    Response,
)
from agent_server.environments.verifiers.inside import source
from agent_server.sandbox.protocol import FileRefused, Sandbox, SandboxNeeds
from rollyard.codec import decode_json, learnt
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.messages import Grade, Prompt, check

_PROGRAM, _TASK, _RESULT, _DIED = "play.py", "task.json", "result.json", "died.txt"
# Isolated: what stands in the workspace is nothing that it may import.
_COMMAND = f"/opt/rollyard/tools/verifiers/bin/python -I {_PROGRAM} || echo $? > {_DIED}"
_MAX_RESULT_BYTES = 1 << 20
_SOLVE_SECONDS = 300.0
_FIX = (
    'a row is {"data_source": "verifiers", "env": "PACKAGE", "args": {...}, "input": {...}}, whose '
    "input is a row of the environment's dataset"
)


class VerifiersRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a row."""

    env: str
    """Package of the environment, or `module:name` of what makes it."""
    input: dict[str, Any]
    """Row of its dataset."""
    args: dict[str, Any] = {}
    seconds: float = 60.0
    """Time that the environment may take by itself between two answers of the policy, and for its
    rubric."""
    solution: list[str | dict[str, Any]] | None = None
    """What a perfect policy says, turn by turn: texts, or messages with `tool_calls`."""

    def __post_init__(self) -> None:
        check(self.seconds > 0, f"seconds must be positive, got {self.seconds}")


class _Signed(msgspec.Struct, frozen=True):
    body: str
    mac: str


class _Played(msgspec.Struct, frozen=True):
    outcome: Literal["graded", "failed", "unavailable"]
    reason: str
    reward: float = 0.0
    metrics: dict[str, float] = {}


class Verifiers:
    needs: ClassVar[Needs] = Needs(sandbox=SandboxNeeds(tools=("verifiers",)), agent="command")

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._row = _row(prompt.instance)
        self._sandbox = sandbox
        self._key = secrets.token_hex(32)
        sandbox.write(_PROGRAM, source(_PROGRAM).encode())
        self._write_task(solution=None)
        return Opening(messages=(), command=_COMMAND)

    def step(self, response: Response) -> Observation:
        raise EnvironmentFailed(
            "this environment talks with the policy by itself",
            fix="let it talk with a model: `rollyard env try --model DIRECTORY --llm-server URL`",
        )

    def solve(self) -> None:
        if self._row.solution is None:
            raise EnvironmentFailed(
                "the row has no solution to play", fix='give it one: "solution": ["the answer"]'
            )
        self._write_task(solution=self._row.solution)
        self._sandbox.run(["/bin/bash", "-c", _COMMAND], deadline_seconds=_SOLVE_SECONDS)

    def grade(self) -> Grade:
        try:
            left = self._sandbox.read(_RESULT, most_bytes=_MAX_RESULT_BYTES)
        except FileRefused:
            return self._without_result()
        played = self._signed(left)
        if played is None:
            return Grade(reward=0.0, reason="the environment's result was overwritten")
        if played.outcome == "unavailable":
            raise Unavailable(f"{self._row.env}: {played.reason}")
        if played.outcome == "failed":
            raise EnvironmentFailed(f"{self._row.env}: {played.reason}")
        return Grade(reward=played.reward, metrics=played.metrics, reason=played.reason)

    def _without_result(self) -> Grade:
        """The grade of a rollout that the Job's time has ended: its process was killed, and nobody
        says how it ended. Raises `EnvironmentFailed` where it ended by itself."""
        try:
            code = self._sandbox.read(_DIED, most_bytes=100).decode(errors="replace").strip()
        except FileRefused:
            return Grade(reward=0.0, reason="it was cut off before its rubric was asked")
        raise EnvironmentFailed(f"{self._row.env}: its process ended with exit code {code}")

    def _signed(self, left: bytes) -> _Played | None:
        try:
            found = decode_json(left, _Signed)
            mac = hmac.new(self._key.encode(), found.body.encode(), hashlib.sha256).hexdigest()
            if not hmac.compare_digest(mac, found.mac):
                return None
            return decode_json(found.body.encode(), _Played)
        except (InvalidMessage, TypeError):  # a signature that is not ASCII
            return None

    def _write_task(self, *, solution: list[str | dict[str, Any]] | None) -> None:
        row = self._row
        task = {"env": row.env, "args": row.args, "input": row.input, "seconds": row.seconds}
        written = json.dumps(task | {"solution": solution, "key": self._key})
        self._sandbox.write(_TASK, written.encode())


def _row(instance: Mapping[str, Any]) -> VerifiersRow:
    try:
        return msgspec.convert(instance, learnt(VerifiersRow))
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"the verifiers row is not usable: {error}", fix=_FIX) from error
