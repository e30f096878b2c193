"""A connection to an LLM server: HTTP/1.1, one request and its answer after the other.

- An answer ends where its head says, and is taken for whole only there.
- Nothing is sent again here, and nothing waits longer than the connection's timeout.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import quote, urlsplit

import msgspec

from llm_servers.answer_heads import (
    AnswerHead,
    BadAnswer,
    HungUp,
    NothingCame,
    chunk_size,
    read_answer_head,
)
from llm_servers.http_heads import MAX_FIELDS, MAX_LINE_BYTES
from rollyard.errors import LaunchError
from rollyard.trust import ca_file_for, refusal, trusting

_PIECE_BYTES = 2**16
_HEAD = (
    b"%b %b HTTP/1.1\r\nHost: %b\r\nAccept-Encoding: identity\r\n"
    b"Content-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
)


class Untrusted(OSError):
    """There is no TLS with the server, or its certificate is refused."""


class AddressOfLLM(msgspec.Struct, frozen=True):
    """Where a server is reached."""

    host: str
    port: int
    tls: bool
    named: bytes
    """The host and the port, as requests name them."""
    root: str
    """The path in front of every route."""

    @classmethod
    @lru_cache
    def of(cls, url: str) -> "AddressOfLLM":
        """The address in a URL. Raises `ValueError`."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        named = parts.netloc.rpartition("@")[2].encode("idna")
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname or "", port, tls, named, quote(parts.path, safe="/%"))


def request_head(
    address: AddressOfLLM, method: str, path: str, length: int, token: str = ""
) -> bytes:
    """The head of a request with a body of `length` bytes, which shows the token if there is
    one."""
    shown = f"Authorization: Bearer {token}\r\n".encode("ascii") if token else b""
    target = f"{address.root}{path}".encode("ascii")
    return _HEAD % (method.encode("ascii"), target, address.named, shown, length)


class LLMConnection:
    """One connection, on which at most one request is under way."""

    def __init__(self, address: AddressOfLLM, seconds: float, token: str = "") -> None:
        """Connect within `seconds`. `token` is shown with every request, if there is one."""
        self._address = address
        self._token = token
        self.sock = socket.create_connection((address.host, address.port), seconds)
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls:
                with understood(address):
                    context = tls_context(address)
                    self.sock = context.wrap_socket(self.sock, server_hostname=address.host)
        except BaseException:
            self.sock.close()
            raise
        self._read = b""
        """What came and is not part of anything yet."""
        self._answer: LLMAnswer | None = None

    def __enter__(self) -> "LLMConnection":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._answer = None
        self.sock.close()

    def send(self, method: str, path: str, body: bytes, seconds: float) -> None:
        """Send a request; nothing that follows pauses for longer than `seconds`. Raises
        `NothingCame`."""
        self._answer = None
        head = request_head(self._address, method, path, len(body), self._token)
        try:
            self.sock.settimeout(seconds)
            self.sock.sendall(head + body)
        except OSError as error:
            raise NothingCame(f"{type(error).__name__} while a request was sent") from error

    def answer(self) -> "LLMAnswer":
        """The answer to the request, of which only the head is read. Raises `NothingCame` and other
        errors of the kind `OSError`."""
        if not self._read:
            try:
                self._more()
            except OSError as error:
                raise NothingCame(str(error)) from error
        head = self._head()
        while head.status < 200:  # an answer to come is not it
            head = self._head()
        self._answer = LLMAnswer(self, head)
        return self._answer

    @property
    def goes_on(self) -> bool:
        """Whether the server takes another request behind the last answer."""
        return self._answer is not None and self._answer.is_followed

    def is_free(self) -> bool:
        """Whether the connection can take another request, as far as can be told without waiting:
        the last answer has ended, nothing came behind it, and the server has not hung up."""
        answer = self._answer
        if answer is None or not self.goes_on:
            return False
        self.sock.settimeout(0)
        try:
            for _ in answer.pieces():  # its end alone may not have been there yet
                return False
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return answer.ended and not self._read
        except OSError:
            pass
        return False

    def line(self) -> bytes:
        """The next line of what comes, without its end."""
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > MAX_LINE_BYTES:
                raise BadAnswer("a line without an end")
            self._more()
        line, self._read = self._read[:end], self._read[end + 1 :]
        return line.removesuffix(b"\r")

    def piece(self, most: int) -> bytes:
        """Some of what comes next."""
        if not self._read:
            self._more()
        piece, self._read = self._read[:most], self._read[most:]
        return piece

    def _more(self) -> None:
        piece = self.sock.recv(_PIECE_BYTES)
        if not piece:
            raise HungUp("the server has hung up")
        self._read += piece

    def _head(self) -> AnswerHead:
        return read_answer_head(self.line(), iter(self.line, b""))


class LLMAnswer:
    """The answer to one request."""

    def __init__(self, connection: LLMConnection, head: AnswerHead) -> None:
        self.status = head.status
        self.media_type = head.media_type
        self.ended = False
        """True once all of it was read."""
        self.is_followed = head.is_followed
        self._connection = connection
        if head.chunked:
            pieces = self._chunks()
        else:
            pieces = self._rest() if head.length is None else self._exactly(head.length)
        self._pieces = self._to_end(pieces)

    def pieces(self) -> Iterator[bytes]:
        """Its content as it comes, each piece once, whoever asks. Raises `OSError`."""
        return self._pieces

    def content(self) -> bytes:
        """All of it. Raises `OSError`."""
        return b"".join(self._pieces)

    def _to_end(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield from pieces
        self.ended = True

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length > 0:
            piece = self._connection.piece(length)
            length -= len(piece)
            yield piece

    def _rest(self) -> Iterator[bytes]:
        with contextlib.suppress(HungUp):
            while True:
                yield self._connection.piece(_PIECE_BYTES)

    def _chunks(self) -> Iterator[bytes]:
        line = self._connection.line
        while size := chunk_size(line()):
            yield from self._exactly(size)
            if line():
                raise BadAnswer("a chunk is longer than it says")
        for _ in range(MAX_FIELDS):
            if not line():
                return
        raise BadAnswer("too much behind the last chunk")


def tls_context(address: AddressOfLLM) -> ssl.SSLContext:
    """What connections to servers with certificates need. Raises `LaunchError`."""
    # TLS 1.3 sends tickets after the handshake: they would be taken for the beginning of an answer.
    return trusting(ca_file_for(_url(address)), ssl.TLSVersion.TLSv1_2)


@contextlib.contextmanager
def understood(address: AddressOfLLM) -> Iterator[None]:
    """A block whose errors of TLS are raised as `Untrusted`, each with a sentence."""
    try:
        yield
    except (ssl.SSLError, LaunchError) as error:
        refused = refusal(error, _url(address))
        raise Untrusted(f"{refused.reason}; {refused.fix}" if refused else str(error)) from error


def _url(address: AddressOfLLM) -> str:
    return f"https://{address.named.decode()}"
