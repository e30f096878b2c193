"""The promises of a dialect. It translates, and does nothing else: it keeps nothing, and threads
share it.

What a dialect offers and the gateway cannot do as it is meant, such as a text that ends a response,
is refused with a sentence: an agent that is not told would be trained on something else than it
asked for. How responses are sampled is the Job's to say, so a client's wishes for that are read
over.
"""

from typing import Protocol

import msgspec

from agent_server.gateway.exchange import Completion, Inquiry


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


class Dialect(Protocol):
    def read(self, sent: bytes) -> Asked:
        """The request in this body. Raises `InvalidMessage`."""
        ...

    def answer(self, asked: Asked, answer: Completion) -> bytes:
        """The whole answer as JSON."""
        ...

    def events(self, asked: Asked, answer: Completion) -> bytes:
        """The answer as server-sent events."""
        ...

    def error(self, status: int, message: str, code: str) -> bytes:
        """An error as JSON."""
        ...
