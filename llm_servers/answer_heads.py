"""The heads of LLM servers' answers: what they say, and where the answer ends."""

import re
from collections.abc import Iterable

import msgspec

from llm_servers.http_heads import BadHead, read_fields

_WITHOUT_CONTENT = (204, 304)
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;|$)")


class BadAnswer(OSError):
    """What came is no answer, or not the whole of one."""


class HungUp(BadAnswer):
    """The connection ended."""


class NothingCame(OSError):
    """The connection ended before anything of an answer."""


class AnswerHead(msgspec.Struct, frozen=True):
    status: int
    media_type: str
    chunked: bool
    length: int | None
    """Bytes of its content; None if only its end tells."""
    is_followed: bool
    """True if the connection goes on behind it, and its end is known."""


def read_answer_head(first: bytes, rest: Iterable[bytes]) -> AnswerHead:
    """The head in these lines. Raises `BadAnswer`."""
    version, _, said = first.partition(b" ")
    code = said.partition(b" ")[0]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != 3 or not code.isdigit():
        raise BadAnswer("what came is no answer in HTTP/1.1")
    try:
        fields = read_fields(rest)
    except BadHead as error:
        raise BadAnswer(str(error)) from error
    status = int(code)
    chunked = fields.get("transfer-encoding", "").lower() == "chunked"
    told = fields.get("content-length")
    if "transfer-encoding" in fields and not chunked:
        raise BadAnswer(f"an unknown encoding: {fields['transfer-encoding'][:80]!r}")
    if told is not None and not (told.isascii() and told.isdigit()):
        raise BadAnswer(f"a length that is none: {told[:80]!r}")
    closes = "close" in fields.get("connection", "").lower()
    length = 0 if status in _WITHOUT_CONTENT else int(told) if told is not None else None
    return AnswerHead(
        status=status,
        media_type=fields.get("content-type", "").partition(";")[0].strip().lower(),
        chunked=chunked,
        length=length,
        is_followed=version == b"HTTP/1.1" and not closes and (chunked or told is not None),
    )


def chunk_size(line: bytes) -> int:
    """The size in the line before a chunk. Raises `BadAnswer`."""
    size = _SIZE.match(line)
    if size is None:
        raise BadAnswer(f"no chunk: {line[:80]!r}")
    return int(size[1], 16)
