"""What the dialects share in reading answers."""

import contextlib
import json
import math
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from llm_servers.generation import LLMBroken, Unanswered
from rollyard.codec import learnt

T = TypeVar("T")


def read_json(content: bytes, kind: type[T]) -> T:
    """The answer in `content`. Raises `Unanswered` for half of one and `LLMBroken` for one of
    another shape."""
    with contextlib.suppress(msgspec.DecodeError):  # the mistake is found below
        return msgspec.json.decode(content, type=learnt(kind))
    try:
        raw = json.loads(content)  # reads NaN, which msgspec refuses: the error should name it
    except ValueError as error:
        raise Unanswered(f"its answer is not JSON: {error}") from error
    try:
        return msgspec.convert(raw, learnt(kind), str_keys=True)
    except msgspec.ValidationError as error:
        raise LLMBroken(f"its answer has an unknown shape: {error}") from error


def numbers(logprobs: Iterable[float | None]) -> tuple[float, ...]:
    """The logprobs, with NaN in place of those that are missing."""
    return tuple(math.nan if each is None else each for each in logprobs)
