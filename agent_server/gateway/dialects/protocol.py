"""The promises of a dialect. It translates, and does nothing else: it keeps nothing, and threads
share it.

What a dialect offers and the gateway cannot do as it is meant, such as a text that ends a response,
is refused with a sentence: an agent that is not told would be trained on something else than it
asked for. How responses are sampled is the Job's to say, so a client's wishes for that are read
over.
"""

from collections import defaultdict
from typing import Protocol

import msgspec

from agent_server.gateway.exchange import Completion, Inquiry, Piece, ToldResponse


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it was asked."""

    inquiry: Inquiry
    model: str
    """The client's name for the policy, which the answer repeats."""
    streams: bool = False
    """True if the answer is to come in events."""
    counts: bool = False
    """True if the last of them is to count the tokens."""
    reasons: bool = False
    """True if the client asked to be told the reasoning."""


class EventStream(Protocol):
    """The server-sent events of one answer. Each method returns those that come next."""

    def begin(self, prompt_tokens: int) -> bytes: ...

    def tell(self, choice: int, piece: Piece) -> bytes:
        """What a response goes on with."""
        ...

    def wait(self) -> bytes:
        """Nothing, for a client that would hang up if nothing came."""
        ...

    def end(self, answer: Completion) -> bytes:
        """All of the answer that was not told yet."""
        ...

    def fail(self, status: int, message: str, code: str) -> bytes:
        """The error that ends the stream."""
        ...


class TellsRest:
    """What was told of each response already."""

    def __init__(self) -> None:
        self._reasoning: defaultdict[int, int] = defaultdict(int)
        self._content: defaultdict[int, int] = defaultdict(int)

    def tell(self, choice: int, piece: Piece) -> None:
        self._reasoning[choice] += len(piece.reasoning)
        self._content[choice] += len(piece.content)

    def rest(self, choice: int, response: ToldResponse) -> Piece:
        """What is left to tell of it."""
        return Piece(
            reasoning=response.reasoning[self._reasoning[choice] :],
            content=response.content[self._content[choice] :],
        )


class Dialect(Protocol):
    def read(self, sent: bytes) -> Asked:
        """The request in this body. Raises `InvalidMessage`."""
        ...

    def answer(self, asked: Asked, answer: Completion) -> bytes:
        """The whole answer as JSON."""
        ...

    def events(self, asked: Asked) -> EventStream:
        """The answer in events, before the first."""
        ...

    def error(self, status: int, message: str, code: str) -> bytes:
        """An error as JSON."""
        ...
