"""Limits on the values in a body, which are counted before it is unpacked.

- An empty map is one byte on the wire and a hundred in memory, so a limit on bytes is not enough.
- Counting makes no objects, and stops at the limit.
- Bodies with many values are counted, unpacked and processed one at a time for each route: several
  at once would take too much memory, and the interpreter from all other threads.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rollyard.errors import TooLarge, Unavailable

BYTES_FOR_A_VALUE = 64
"""Bytes of a route's maximum body size for which a body may have one value: a number, text, list,
map or key."""
FEW_VALUES = 32_768
"""Number of values up to which a body need not wait for others."""
PATIENCE_SECONDS = 30.0
"""Time that a body waits for others to be processed."""

Body = bytes | bytearray

_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BEFORE_A_VALUE = (b",", b":", b"[", b"{")


class Unpacking:
    """Lets the large bodies of one route be processed one at a time. Safe to share."""

    def __init__(self, max_bytes: int) -> None:
        self._most_values = max_bytes // BYTES_FOR_A_VALUE
        self._turn = threading.Lock()

    @contextmanager
    def of(self, body: Body, *, packed: bool) -> Iterator[None]:
        """A block in which the body, msgpack if `packed` and else JSON, is unpacked and processed.
        Raises `TooLarge`, and `Unavailable` if its turn does not come in time."""
        if len(body) <= FEW_VALUES or values_in(body, FEW_VALUES, packed=packed) <= FEW_VALUES:
            yield
            return
        if not self._turn.acquire(timeout=PATIENCE_SECONDS):
            raise Unavailable("other large bodies are being processed", fix="send it again later")
        try:
            if values_in(body, self._most_values, packed=packed) > self._most_values:
                raise TooLarge(
                    f"the body holds more than {self._most_values} values",
                    fix="send less at once; keep what is long and nested as text",
                )
            yield
        finally:
            self._turn.release()


def values_in(body: Body, most: int, *, packed: bool) -> int:
    """Number of values in a body. Counting ends beyond `most`, and the number is arbitrary if the
    body is not valid."""
    return _in_msgpack(body, most) if packed else _in_json(body, most)


def _in_json(body: Body, most: int) -> int:
    # An upper bound, since texts hold such bytes, too; most bodies need no closer look.
    with_those_in_texts = 1 + sum(map(body.count, _BEFORE_A_VALUE))
    if with_those_in_texts <= most:
        return with_those_in_texts
    bare = _TEXT.sub(b"0", body)
    empty = bare.count(b"[]") + bare.count(b"{}")
    return 1 + sum(map(bare.count, _BEFORE_A_VALUE)) - empty


def _in_msgpack(body: Body, most: int) -> int:
    values, place, end = 0, 0, len(body)
    while place < end and values <= most:
        values += 1
        kind = body[place]
        place += _STEPS[kind]
        if kind in _LENGTHS:
            place += int.from_bytes(body[place - _LENGTHS[kind] : place], "big") + (kind in _EXT)
    return values


_EXT = (0xC7, 0xC8, 0xC9)
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""First byte of a binary, extension or text -> size of its length field, which follows."""


def _steps() -> list[int]:
    """First byte of a msgpack value -> size of its fixed part: that byte, and the number, length
    field or short text after it. Items of lists and maps count as values of their own."""
    steps = [1] * 256
    for length in range(32):
        steps[0xA0 + length] += length
    for kind, more in _LENGTHS.items():
        steps[kind] += more
    for first, lengths in (
        (0xCA, (4, 8)),  # floats
        (0xCC, (1, 2, 4, 8)),  # numbers without a sign
        (0xD0, (1, 2, 4, 8)),  # numbers with one
        (0xD4, (2, 3, 5, 9, 17)),  # extensions of a fixed length, with their type
        (0xDC, (2, 4, 2, 4)),  # lengths of lists and maps
    ):
        for offset, more in enumerate(lengths):
            steps[first + offset] += more
    return steps


_STEPS = _steps()
