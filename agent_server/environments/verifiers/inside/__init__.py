"""The program that plays a rollout in the sandbox, as source text; it imports nothing of ours."""

from functools import cache
from pathlib import Path


@cache
def source(name: str) -> str:
    """The text of a program, by its file's name."""
    return (Path(__file__).parent / name).read_text()
