"""One Turn on the wire: what an LLM server is asked for, and what it answered.

An answer is used only when it is whole: one logprob and one weight version for every token.
"""

import json
import math
from collections.abc import Sequence

import msgspec

from llm_servers.contract import (
    GenerateAnswer,
    GenerateRequest,
    SamplingParams,
    Usage,
    VersionSpan,
)
from rollyard.errors import LLMUnavailable
from rollyard.logprobs import are_logprobs
from rollyard.messages import Sampling, WeightSpan


class LLMBroken(LLMUnavailable):
    """The server answered, and the answer cannot be used: sending it again would not help."""


class Unanswered(LLMUnavailable):
    """No whole answer came: the Turn may be sent again."""


class Unlabelled(Unanswered):
    """The server started again, and its weights have no version yet: its node puts those that were
    published last on it and says so."""


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one Turn asks for."""

    trajectory: str
    """Names the trajectory, so that its Turns go to one server."""
    group: str
    """Names its Group, whose members have their prompt in common."""
    token_ids: Sequence[int]
    sampling: Sampling
    max_tokens: int
    stop_token_ids: tuple[int, ...]
    """Each of them ends the response, and no other token does."""
    min_version: int = 0
    """The trajectory has tokens of this weight version: older weights do not go on with it."""
    until: float = math.inf
    """When the Job's time is over, on the monotonic clock."""

    def after(self, said: "Generation") -> "TurnRequest":
        """The request for what follows `said`, as a part of the same response."""
        return msgspec.structs.replace(
            self,
            token_ids=(*self.token_ids, *said.token_ids),
            max_tokens=self.max_tokens - len(said.token_ids),
            min_version=max((self.min_version, *(s.version for s in said.weight_spans))),
        )

    def body(self, request_id: str) -> GenerateRequest:
        """The request as it crosses the wire."""
        return GenerateRequest(
            request_id=request_id,
            token_ids=self.token_ids,
            sampling_params=SamplingParams(
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=self.max_tokens,
                stop_token_ids=self.stop_token_ids,
                ignore_eos=True,  # or the server adds those that it finds in the model's files
                logprobs=0,
            ),
        )


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One response. Weight spans count from its first token."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    weight_spans: tuple[WeightSpan, ...]
    finish_reason: str
    """`stop`, `length` or `abort`."""

    def followed_by(self, part: "Generation") -> "Generation":
        """Both as one response, which ended as `part` did."""
        spans, start = list(self.weight_spans), len(self.token_ids)
        for span in part.weight_spans:
            begins = start + span.start
            if spans and spans[-1].version == span.version:
                begins = spans.pop().start
            spans.append(WeightSpan(version=span.version, start=begins, end=start + span.end))
        return Generation(
            token_ids=self.token_ids + part.token_ids,
            logprobs=self.logprobs + part.logprobs,
            weight_spans=tuple(spans),
            finish_reason=part.finish_reason,
        )

    def ended_by(self, request: TurnRequest) -> "Generation":
        """As it is, but finished if it was aborted at its very end: nothing could follow."""
        reason = self.finish_reason
        if reason == "abort" and self.token_ids and self.token_ids[-1] in request.stop_token_ids:
            reason = "stop"
        elif reason == "abort" and len(self.token_ids) == request.max_tokens:
            reason = "length"
        return msgspec.structs.replace(self, finish_reason=reason)


NOTHING = Generation(token_ids=(), logprobs=(), weight_spans=(), finish_reason="abort")
"""What there is of a response before its first token."""


def read_generation(content: bytes, request: TurnRequest) -> Generation:
    """The response in `content`. Raises `Unanswered` for half an answer, `Unlabelled` for one of
    unknown weights, else `LLMBroken`."""
    answer = _read(content)
    choice = answer.choices[0]
    generation = Generation(
        token_ids=tuple(choice.token_ids or ()),
        logprobs=choice.sampled_logprobs,
        weight_spans=tuple(map(_span, choice.weight_versions or ())),
        finish_reason=choice.finish_reason or "",
    )
    _check(generation, request, answer.usage)
    return generation


def _read(content: bytes) -> GenerateAnswer:
    try:
        raw = json.loads(content)  # unlike msgspec, reads NaN, which we want to name
    except ValueError as error:
        raise Unanswered(f"its answer is not JSON: {error}") from error
    try:
        answer = msgspec.convert(raw, GenerateAnswer, str_keys=True)
    except msgspec.ValidationError as error:
        raise LLMBroken(f"its answer has an unknown shape: {error}") from error
    _require(len(answer.choices) == 1, f"it gave {len(answer.choices)} choices, not one")
    return answer


def _check(generation: Generation, request: TurnRequest, usage: Usage | None) -> None:
    tokens = len(generation.token_ids)
    _require(
        generation.finish_reason in ("stop", "length", "abort"),
        f"it ended for an unknown reason, {generation.finish_reason!r}",
    )
    _require(tokens > 0 or generation.finish_reason == "abort", "it gave no tokens")
    _require(tokens <= request.max_tokens, f"it gave {tokens} tokens, {request.max_tokens} allowed")
    _require(
        len(generation.logprobs) == tokens,
        f"it gave {len(generation.logprobs)} logprobs for {tokens} tokens",
    )
    _require(
        are_logprobs(generation.logprobs),
        "it gave NaN or infinite logprobs, which means broken weights",
    )
    _require(all(token >= 0 for token in generation.token_ids), "it gave a negative token id")
    _require(
        generation.finish_reason != "stop" or generation.token_ids[-1] in request.stop_token_ids,
        "its last token is none of those that end a response",
    )
    _require(_covers(generation.weight_spans, tokens), "its weight versions leave tokens out")
    _refuse_older_weights(generation.weight_spans, request.min_version)
    if usage is not None and usage.prompt_tokens is not None:
        _require(
            usage.prompt_tokens == len(request.token_ids),
            f"it saw {usage.prompt_tokens} prompt tokens, {len(request.token_ids)} were sent",
        )


def _refuse_older_weights(spans: tuple[WeightSpan, ...], min_version: int) -> None:
    """A server that missed an update may have had it when it is asked again, or another has."""
    newest = min_version
    for span in spans:
        if span.version < newest:
            raise Unanswered(f"its weight version {span.version} comes after version {newest}")
        newest = span.version


def _covers(spans: tuple[WeightSpan, ...], tokens: int) -> bool:
    """Whether `spans` follow each other from 0 to `tokens`."""
    starts = [span.start for span in spans]
    ends = [span.end for span in spans]
    return [0, *ends] == [*starts, tokens] if spans else tokens == 0


def _span(span: VersionSpan) -> WeightSpan:
    if not span.version.isdecimal():
        raise Unlabelled(f"its weights have no version yet: it calls them {span.version!r}")
    return WeightSpan(version=int(span.version), start=span.start, end=span.end)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise LLMBroken(problem)
