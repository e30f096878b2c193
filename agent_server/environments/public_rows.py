"""Rows of public datasets of mathematics and programming, by their field names.

A value that a dataset keeps as a JSON string is decoded. Every function raises `InvalidMessage`
for a row that lacks what is asked for.
"""

import json
from collections.abc import Mapping
from typing import Any

from agent_server.rewards.answers import last_program
from agent_server.rewards.protocol import GroundTruth
from rollyard.errors import InvalidMessage
from rollyard.messages import ChatMessage

_FIX = (
    'a row has {"prompt": [{"role": "user", "content": ...}], "reward_model": {"ground_truth": '
    '...}}, or {"problem": ..., "answer": ...}'
)


def messages(instance: Mapping[str, Any], *, instruction: str) -> tuple[ChatMessage, ...]:
    """The conversation of the row's `prompt`, which is left as it is, or its `problem` with the
    instruction behind it."""
    prompt = _decoded(instance.get("prompt"))
    if isinstance(prompt, list) and prompt:
        return tuple(_message(each) for each in prompt)
    if isinstance(prompt, str) and prompt.strip():
        return (ChatMessage(role="user", content=prompt),)
    problem = instance.get("problem")
    if isinstance(problem, str) and problem.strip():
        return (ChatMessage(role="user", content=f"{problem}\n\n{instruction}"),)
    raise InvalidMessage("the row has neither a prompt nor a problem", fix=_FIX)


def ground_truth(instance: Mapping[str, Any]) -> GroundTruth:
    """The expected answer: `ground_truth` of `reward_model`, else `answer`."""
    model = _decoded(instance.get("reward_model"))
    given = model.get("ground_truth") if isinstance(model, dict) else instance.get("answer")
    if isinstance(given, int | float):
        given = str(given)
    if isinstance(given, str | list | dict) and given:
        return given
    raise InvalidMessage(f"the row has no ground truth, got {given!r}", fix=_FIX)


def extra_info(instance: Mapping[str, Any]) -> dict[str, Any]:
    """The row's `extra_info`, empty if it has none."""
    extra = _decoded(instance.get("extra_info")) or {}
    if not isinstance(extra, dict):
        raise InvalidMessage(f"extra_info must be an object, got {extra!r}", fix=_FIX)
    return extra


def solution(instance: Mapping[str, Any]) -> str:
    """A program that solves the row: `solution`, or the first of `solutions`, out of its fence."""
    given = _decoded(instance.get("solution") or instance.get("solutions"))
    first = given[0] if isinstance(given, list) and given else given
    if not isinstance(first, str) or not first.strip():
        raise InvalidMessage(
            "the row has no solution to prove it with",
            fix='give it a program that solves it as "solution"',
        )
    return last_program(first) or first


def _message(written: Any) -> ChatMessage:
    match written:
        case {"role": str(role), "content": str(content)}:
            return ChatMessage(role=role, content=content)
    raise InvalidMessage(f"a prompt's message needs role and content, got {written!r}", fix=_FIX)


def _decoded(value: Any) -> Any:
    """The value that a JSON string stands for; plain text stands for itself."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
