"""Results: what an attempt at a Job reports, and the answer to it.

Token data is held in `array` objects: ids as 'i' (int32), logprobs as 'f' (float32) and the
loss mask as 'b' (int8), so that they cross a process as raw bytes (see `rollyard.codec`).
"""

import math
from array import array
from enum import StrEnum
from typing import TYPE_CHECKING, SupportsFloat

import msgspec

from rollyard.errors import InvalidMessage
from rollyard.logprobs import are_logprobs
from rollyard.messages.base import Count, Message, check, check_most
from rollyard.messages.conversation import ChatMessage
from rollyard.messages.llm import LogprobKind
from rollyard.messages.work import Assignment, Lease

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


MAX_REASON_CHARACTERS = 4000
MAX_SHOWN_CHARACTERS = 100
MAX_NAMED = 64
"""Limit on the components of a grade, and on its metrics."""


class Grade(Message, frozen=True, omit_defaults=True):
    """The worth of one trajectory, and why. Numbers of other libraries become plain ones. Raises
    `InvalidMessage` for what is no finite number."""

    reward: float
    components: dict[str, float] = msgspec.field(default_factory=dict)
    """Parts that the reward was made of, by name."""
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    """Other figures of the trajectory, by name, which are no part of the reward."""
    reason: str = ""
    """One sentence that says what earned or cost the reward."""

    def __post_init__(self) -> None:
        # Environments make grades, with whatever their libraries call a number.
        msgspec.structs.force_setattr(self, "reward", _reward(self.reward))
        for what in ("components", "metrics"):
            msgspec.structs.force_setattr(self, what, _figures(getattr(self, what), what))
        check(
            isinstance(self.reason, str), f"the reason of a grade must be text, got {self.reason!r}"
        )
        check_most(len(self.reason), MAX_REASON_CHARACTERS, "the length of a grade's reason")


def _reward(given: object) -> float:
    number = _number(given)
    check(
        math.isfinite(number),
        f"a grade needs a finite reward, got {_shown(given)}",
        fix="give a number; what cannot be graded is an exception, which is never a reward",
    )
    return number


def _figures(given: object, what: str) -> dict[str, float]:
    """The figures by name, as plain numbers."""
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise InvalidMessage(
            f"the {what} of a grade must be numbers by name, got {_shown(given)}",
            fix='give a dict like {"turns": 3.0}',
        )
    check_most(len(given), MAX_NAMED, f"the number of {what} of a grade")
    numbers = {name: _number(value) for name, value in given.items()}
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise InvalidMessage(
                f"{name!r} of a grade's {what} is {_shown(given[name])}, and no finite number",
                fix="give a number, or leave it out",
            )
    return numbers


def _number(given: object) -> float:
    """The number as a plain float, also that of another library or a bool; NaN for what is none,
    such as text that spells one."""
    if type(given) is float:
        return given
    if not isinstance(given, SupportsFloat):  # a look at each of its methods: ten times the rest
        return math.nan
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # as of a tensor of several
        return math.nan


def _shown(given: object) -> str:
    return repr(given)[:MAX_SHOWN_CHARACTERS]


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    """The policy reached an end: it has a reward, also when it is wrong or was truncated."""
    INFRA_FAILED = "infra_failed"
    """The infrastructure failed: never a reward, retried up to the Run's budget."""
    CANCELLED = "cancelled"
    """The attempt was given back, uncharged; its Job is queued again if it is still wanted."""


class Blame(StrEnum):
    """Cause of an infrastructure failure, as far as the agent server can tell."""

    SERVER = "server"
    """The agent server, its sandbox, or the LLM servers: another server may do better."""
    ROW = "row"
    """The Prompt, or its environment's code on it: it fails wherever it runs, so it is not held
    against the server that tried it."""


class Timings(Message, frozen=True):
    """Seconds that an attempt spent in each stage, excluding time parked."""

    init_seconds: float = 0.0
    run_seconds: float = 0.0
    eval_seconds: float = 0.0
    parked_seconds: float = 0.0


class AnyResult(Message, frozen=True):
    """A Result, packed or not, by what the orchestrator decides on. It crosses no wire itself."""

    lease: Lease
    outcome: Outcome
    grade: Grade | None = None
    trajectory: Trajectory | PackedTrajectory | None = None
    error: str = ""
    """Reason of an outcome other than `completed`."""
    blame: Blame = Blame.SERVER
    """Cause of the failure; only meaningful if the outcome is `infra_failed`."""
    timings: Timings = Timings()

    def __post_init__(self) -> None:
        if self.outcome is Outcome.COMPLETED:
            check(self.trajectory is not None, "a completed result needs its trajectory")
            check(self.grade is not None, "a completed result needs its grade")
        else:
            check(self.grade is None, f"a result that {self.outcome} must not carry a grade")

    @property
    def reward(self) -> float | None:
        """The grade's reward; None unless the outcome is `completed`."""
        return None if self.grade is None else self.grade.reward


class Result(AnyResult, frozen=True):
    """How one attempt of a Job ended. Exactly one completed Result is accepted per Job."""

    trajectory: Trajectory | None = None


class PackedResult(AnyResult, frozen=True):
    """A Result as it crosses the orchestrator: the same on the wire."""

    trajectory: PackedTrajectory | None = None


class Receipt(StrEnum):
    """Fate of a reported Result."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same attempt was accepted before, and its reply was lost."""
    REQUEUED = "requeued"
    DEAD = "dead"
    STALE = "stale"
    """The attempt no longer holds the Lease: nothing of the Result was kept."""


class Reported(Message, frozen=True):
    """The answer to a Result."""

    receipt: Receipt
    assignment: Assignment | None = None
    """The Slot's next Job, if one was asked for and was waiting."""
