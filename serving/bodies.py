"""The body of a request: how large it may be, and how the app comes by it."""

import io
from typing import Any

from flask import request
from gunicorn.http.errors import ParseException

from rollyard.errors import InvalidMessage

MAX_BODY_BYTES = 64 * 2**20
"""Of what any route takes: Results with long trajectories, and Jobs that travel together."""
MAX_PROMPTS_BYTES = 16 * 2**20
MAX_LEASES_BYTES = 8 * 2**20
"""Every Lease of a server with all the Slots that one may have."""
MAX_SHORT_BODY_BYTES = 2**20
"""Of what a route takes that declares nothing: settings, registrations, orders, one transcript."""
PIECE_BYTES = 64 * 2**10


class Received(io.RawIOBase):
    """A body that has arrived, as the `wsgi.input` of its request."""

    def __init__(self, content: bytearray) -> None:
        self.content = content
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        piece = memoryview(self.content)[self._place : self._place + len(target)]
        target[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)


def body() -> bytearray:
    """What was sent, held once. Raises `RequestEntityTooLarge` and `InvalidMessage`."""
    stream = request.stream  # refuses what says that it is too long
    arrived = request.environ["wsgi.input"]
    if isinstance(arrived, Received):
        return arrived.content
    try:
        return _read(stream)
    except (ParseException, OSError) as error:
        raise InvalidMessage(f"the body broke off: {error}") from error


def _read(stream: Any) -> bytearray:
    """Piece by piece, because werkzeug cuts off what came without a length at the limit when asked
    for everything, and refuses it only when asked for more."""
    content, length = bytearray(), request.content_length
    while len(content) != length and (piece := stream.read(PIECE_BYTES)):
        content += piece
    return content
