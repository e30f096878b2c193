"""Trajectories: the tokens of an attempt, and who sampled them.

Token data is held in `array` objects: ids as 'i' (int32), logprobs as 'f' (float32) and the
loss mask as 'b' (int8), so that they cross a process as raw bytes (see `rollyard.codec`).
"""

from array import array
from typing import TYPE_CHECKING

import msgspec

from rollyard.logprobs import are_logprobs
from rollyard.messages.base import Count, Message, check
from rollyard.messages.conversation import ChatMessage
from rollyard.messages.llm import LogprobKind

if TYPE_CHECKING:
    TokenArray = array[int]
    LogprobArray = array[float]
else:  # Python 3.11 arrays take no type parameters at run time
    TokenArray = LogprobArray = array


class WeightSpan(Message, frozen=True, omit_defaults=True):
    """The tokens at positions [start, end) of a sequence, all sampled under one weight version.

    Spans cover responses alone; consecutive ones may touch, where the weights changed within a
    response.
    """

    version: Count
    start: Count
    end: Count
    assumed: bool = False
    """True if the LLM server did not tell the version: it is the one published last when the tokens
    were requested. Some may be of newer weights."""
    logprobs: LogprobKind = LogprobKind.SAMPLED
    """The kind of the tokens' logprobs."""

    def continues_in(self, other: "WeightSpan") -> bool:
        """Whether the other span differs in its positions alone."""
        return (self.version, self.assumed, self.logprobs) == (
            other.version,
            other.assumed,
            other.logprobs,
        )


class Turn(Message, frozen=True):
    """One response of the policy: its tokens are `token_ids[start:end]` of its sequence.

    The exact prompt was `token_ids[:start]`: a Turn's prompt is always the previous prompt,
    response and observation, so the sequence holds every token once.
    """

    start: Count
    end: Count
    finish_reason: str
    """`stop` (the policy ended its turn), `length` (out of tokens) or `abort`."""


class Sequence(Message, frozen=True):
    """Consecutive Turns, token-exact. All three arrays have shape [tokens]."""

    token_ids: TokenArray
    """int32 [tokens]: prompt, responses and observations, in the order of the conversation."""
    loss_mask: TokenArray
    """int8 [tokens]: 1 where the policy sampled the token, 0 in the prompt and in observations."""
    logprobs: LogprobArray
    """float32 [tokens]: log-probability of each sampled token in the distribution it was drawn
    from, which is that of the weights at the Run's temperature and `top_p`, unless its weight span
    names another kind. 0.0 where the mask is 0."""
    weight_spans: tuple[WeightSpan, ...]
    """Weight versions of the sampled tokens, by position."""
    turns: tuple[Turn, ...]

    def __post_init__(self) -> None:
        tokens = len(self.token_ids)
        check(
            len(self.loss_mask) == tokens and len(self.logprobs) == tokens,
            f"trajectory arrays differ in length: {tokens} token_ids, {len(self.loss_mask)} "
            f"loss_mask, {len(self.logprobs)} logprobs",
        )
        check(
            are_logprobs(self.logprobs),
            "trajectory has NaN or infinite logprobs",
            fix="look at the LLM server's log: such logprobs mean broken weights",
        )

    @property
    def prompt_length(self) -> int:
        """Tokens before the policy's first one."""
        return self.turns[0].start if self.turns else len(self.token_ids)


class Trajectory(Sequence, frozen=True):
    """The Turns of one attempt. Nearly always they are this one sequence.

    A chat template that rewrites the conversation, as those do that leave earlier reasoning out
    once the user speaks again, splits it: a new sequence begins, whose prompt is the conversation
    as the policy was shown it then. Each sequence is exact by itself, and all share the reward.
    """

    messages: tuple[ChatMessage, ...]
    """The whole conversation as text."""
    truncated: bool = False
    """True if a turn, token or time limit ended the trajectory, not the policy."""
    earlier: tuple[Sequence, ...] = ()
    """Sequences before this one, oldest first. Each Turn is in one of them."""

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """All sequences to train on, oldest first."""
        return (*self.earlier, self)


class PackedSequence(Message, frozen=True):
    """A Sequence as it crosses the orchestrator, which reads who sampled it and nothing else.

    It is the same on the wire. What stays packed is checked by the trainer, who reads it.
    """

    token_ids: msgspec.Raw
    loss_mask: msgspec.Raw
    logprobs: msgspec.Raw
    weight_spans: tuple[WeightSpan, ...]
    turns: msgspec.Raw


class PackedTrajectory(PackedSequence, frozen=True):
    """A Trajectory as it crosses the orchestrator."""

    messages: msgspec.Raw
    truncated: bool = False
    earlier: tuple[PackedSequence, ...] = ()

    @property
    def sequences(self) -> tuple[PackedSequence, ...]:
        """All sequences, oldest first."""
        return (*self.earlier, self)
