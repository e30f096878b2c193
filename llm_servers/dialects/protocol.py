"""A dialect is a wire form of one Turn: how it is asked for, answered and aborted."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from llm_servers.generation import TurnRequest
from llm_servers.responses import UncheckedResponse
from rollyard.messages import LogprobKind


class LLMCall(msgspec.Struct, frozen=True):
    """A POST request to an LLM server."""

    path: str
    body: object


class LLMStream(Protocol):
    """A response that comes in events, as far as it has come."""

    def hear(self, event: bytes) -> tuple[int, ...]:
        """The tokens that an event tells. Raises `Unanswered` where it tells of a failure, and
        `LLMBroken` for one of another form."""
        ...

    def read(self) -> UncheckedResponse:
        """The whole response, once it has ended."""
        ...


class LLMDialect(Protocol):
    """A wire form. It has no state, and knows nothing of connections."""

    @property
    def name(self) -> str: ...

    @property
    def remedies(self) -> Mapping[LogprobKind, str]:
        """How to start a server so that it does not report these logprobs. Where that is known, a
        server that reports them is not used."""

    @property
    def names_model(self) -> bool:
        """Whether requests may have to name the policy: where a server has adapters, they would get
        the model without one."""
        ...

    def generate(self, request: TurnRequest, request_id: str) -> LLMCall: ...

    def stream(self, request: TurnRequest, request_id: str) -> tuple[LLMCall, LLMStream] | None:
        """The call for a response that comes in events, and its reader; None where responses come
        whole alone."""

    def read(self, content: bytes, request: TurnRequest) -> UncheckedResponse:
        """The response in `content`. Raises `Unanswered` for half an answer and `LLMBroken` for one
        of another form."""

    def abort(self, request_id: str) -> LLMCall | None:
        """The call after which a request is answered with the tokens that it has; None where only
        the end of its connection ends it, and its tokens are lost."""
