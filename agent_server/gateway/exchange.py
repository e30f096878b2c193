"""What clients ask of a session and are answered, in whichever protocol they speak."""

from typing import Protocol

import msgspec

from rollyard.errors import Forbidden, InvalidMessage, Unavailable
from rollyard.messages import ChatMessage, ToolCall, ToolSchema

MAX_CHOICES = 16
"""Limit on the responses to one request."""


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that the policy is to go on with."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    """Tools that the policy is told of."""
    calls: bool = True
    """False if the response is text, whatever calls it spells."""
    choices: int = 1
    """Number of responses, each to the same prompt."""
    logprobs: bool = False
    """True if the client wants the text of every token, with its logprob."""
    max_tokens: int | None = None
    """Limit on the tokens of a response, where the client wants a tighter one than the Job's."""


class ToldResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response, as the client is told it."""

    content: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    """`stop` or `length`."""
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    """Text of each token; empty unless the client wants it."""
    logprobs: tuple[float, ...]

    def told(self) -> ChatMessage:
        """The response as a message of the client's conversation."""
        return ChatMessage(
            role="assistant",
            content=self.content,
            tool_calls=self.calls,
            reasoning=self.reasoning,
        )


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The responses to one inquiry."""

    choices: tuple[ToldResponse, ...]
    prompt_tokens: int

    @property
    def response_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What a response goes on with."""

    reasoning: str = ""
    content: str = ""

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content)


class Hearer(Protocol):
    """Whoever is told responses while they are sampled, from several threads if there are several.
    It raises nothing: what was sampled is recorded, whoever has hung up."""

    def begin(self, prompt_tokens: int) -> None:
        """Learn the length of the prompt, before anything else."""
        ...

    def hear(self, choice: int, piece: Piece) -> None: ...


class ContextExceeded(InvalidMessage):
    """A prompt that leaves no room for a response: the client may go on with a shorter one."""


class TurnsExhausted(Forbidden):
    """The Job's limit of Turns is reached."""


class SessionOver(Forbidden):
    """The Job has ended, or its time is over."""


class TooManyRequests(Unavailable):
    """More requests at once than a session answers."""

    status = 429
