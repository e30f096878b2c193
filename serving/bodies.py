"""Bodies of requests: their maximum sizes, and how the app receives them."""

import io
from typing import Any

from flask import request
from gunicorn.http.errors import ParseException

from rollyard.errors import InvalidMessage

MAX_BODY_BYTES = 64 * 2**20
"""Maximum over all routes: Results with long trajectories, and Jobs sent together."""
MAX_PROMPTS_BYTES = 16 * 2**20
MAX_LEASES_BYTES = 8 * 2**20
"""Room for every Lease of an agent server with the maximum number of Slots."""
MAX_SHORT_BODY_BYTES = 2**20
"""Maximum for a route that declares none: settings, registrations, orders, one transcript."""
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
    """The request's body, without a copy. Raises `RequestEntityTooLarge` if it is too large, and
    `InvalidMessage` if it is incomplete."""
    stream = request.stream  # refuses a Content-Length beyond the limit
    arrived = request.environ["wsgi.input"]
    if isinstance(arrived, Received):
        return arrived.content
    try:
        return _read(stream)
    except (ParseException, OSError) as error:
        raise InvalidMessage(f"the body broke off: {error}") from error


def _read(stream: Any) -> bytearray:
    """The stream's content, read piece by piece."""
    # A body without a length: werkzeug's `read()` cuts it off at the limit without a word, and
    # only the next read after that refuses it.
    content, length = bytearray(), request.content_length
    while len(content) != length and (piece := stream.read(PIECE_BYTES)):
        content += piece
    return content
