"""The episodes: additions by a tool, one number after the other, and the sum as the last word.

Every service plays them, each in its own terms; nothing here needs a package.
"""

import random

TURNS = 10
"""Turns of an episode: nine calls of the tool, and the answer."""
SAMPLES = 8
"""Episodes of each question."""


def numbers(question: int) -> list[int]:
    """The numbers to add, of which some questions have longer ones."""
    draw = random.Random(question)
    digits = draw.randint(1, 6)
    return [draw.randrange(10 ** (digits - 1), 10**digits) for _ in range(TURNS - 1)]


def asks(question: int) -> str:
    """The beginning of the question, which no other has."""
    return f"Question {question}:"


def text(question: int) -> str:
    """The question."""
    listed = ", ".join(map(str, numbers(question)))
    return f"{asks(question)} add {listed} to 0, one after the other, and say the sum."


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answer(question: int) -> str:
    """The last word of a policy that solves it."""
    return f"The sum is {sum(numbers(question))}."


def reward(question: int, last_word: str) -> float:
    return float(last_word.strip() == answer(question))


PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
"""JSON Schema of the tool's arguments."""
