"""One Turn: the request to an LLM server, and the response to it."""

import math
from collections.abc import Callable, Sequence

import msgspec

from rollyard.errors import LLMUnavailable
from rollyard.messages import Sampling, WeightSpan


class LLMBroken(LLMUnavailable):
    """The server's answer cannot be used, and asking again would not help."""


class Unanswered(LLMUnavailable):
    """No complete answer came; the Turn may be sent again."""


class Unlabelled(Unanswered):
    """The server was restarted, and its weights have no version yet: its node is about to load and
    label those last published."""


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request for one Turn, or for the rest of an interrupted one."""

    trajectory: str
    """Key of the trajectory, all of whose Turns go to one server for its prefix cache."""
    group: str
    """Key of its Group, whose members share their prompt."""
    token_ids: Sequence[int]
    """The exact prompt."""
    sampling: Sampling
    max_tokens: int
    """Maximum length of the response."""
    stop_token_ids: tuple[int, ...]
    """Tokens that end the response; no other token does."""
    model: str = ""
    """Name that the server has for the policy; empty where it need not be named."""
    min_version: int = 0
    """Newest weight version among the trajectory's tokens: older weights must not continue it."""
    until: float = math.inf
    """Deadline of the Job, in monotonic seconds."""
    hear: Callable[[Sequence[int]], None] | None = None
    """Told the tokens of the response as they come, each once; None if nobody waits for them."""

    def after(self, said: "Generation") -> "TurnRequest":
        """The request that continues the response after `said`."""
        if not said.token_ids:
            return self
        return msgspec.structs.replace(
            self,
            token_ids=(*self.token_ids, *said.token_ids),
            max_tokens=self.max_tokens - len(said.token_ids),
            min_version=max((self.min_version, *(s.version for s in said.weight_spans))),
        )


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One response, or a part of one."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each token, of the kind that its weight span names."""
    weight_spans: tuple[WeightSpan, ...]
    """Weight versions of the tokens; positions count from the first of them."""
    finish_reason: str
    """One of `stop`, `length` and `abort`."""

    def followed_by(self, part: "Generation") -> "Generation":
        """This part and the next one as one response, with the next one's finish reason."""
        spans, start = list(self.weight_spans), len(self.token_ids)
        for span in part.weight_spans:
            begins = start + span.start
            if spans and spans[-1].continues_in(span):
                begins = spans.pop().start
            spans.append(msgspec.structs.replace(span, start=begins, end=start + span.end))
        return Generation(
            token_ids=self.token_ids + part.token_ids,
            logprobs=self.logprobs + part.logprobs,
            weight_spans=tuple(spans),
            finish_reason=part.finish_reason,
        )

    def ended_by(self, request: TurnRequest) -> "Generation":
        """This response, marked as finished if the abort came only after its last token."""
        reason = self.finish_reason
        if reason == "abort" and self.token_ids and self.token_ids[-1] in request.stop_token_ids:
            reason = "stop"
        elif reason == "abort" and len(self.token_ids) == request.max_tokens:
            reason = "length"
        return msgspec.structs.replace(self, finish_reason=reason)


NOTHING = Generation(token_ids=(), logprobs=(), weight_spans=(), finish_reason="abort")
"""A response before its first token."""
