"""Replies that were written down beforehand: what a scripted policy says to which question.

A file of JSON lines, each with a text that the conversation's user asks, and the scripts that
answer it, turn by turn: `{"asks": "2*3", "scripts": [["<tool_call>2*3</tool_call>", "6"], ["7"]]}`.
A conversation follows one script, which is drawn at its first turn.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollyard.codec import learnt
from rollyard.errors import LaunchError


class Replies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scripts for one question."""

    asks: str
    """Text that the conversation contains."""
    scripts: tuple[tuple[str, ...], ...]
    """Responses of each script, a turn each."""

    def next(self, earlier: Sequence[str], begun: str, chance: random.Random) -> str:
        """The response that follows these earlier ones and begins with `begun`; that alone where
        no script goes on so."""
        turn = len(earlier)
        fitting = [each for each in self.scripts if list(each[:turn]) == list(earlier)]
        following = [each[turn] for each in fitting if turn < len(each)]
        going_on = [each for each in following if each.startswith(begun)]
        return chance.choice(going_on) if going_on else begun


def read_replies(path: Path | None) -> tuple[Replies, ...]:
    """The replies in the file; none without one. Raises `LaunchError`."""
    if path is None:
        return ()
    try:
        return tuple(msgspec.json.Decoder(learnt(Replies)).decode_lines(path.read_bytes()))
    except (OSError, msgspec.MsgspecError) as error:
        raise LaunchError(f"cannot read the replies in {path}: {error}") from error
