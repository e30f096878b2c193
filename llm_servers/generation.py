"""One Turn on the wire: the request to an LLM server, and its checked answer.

An answer is used only if it is complete: one logprob and one weight version for every token.
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
from rollyard.codec import learnt
from rollyard.errors import LLMUnavailable
from rollyard.logprobs import are_logprobs
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
    min_version: int = 0
    """Newest weight version among the trajectory's tokens: older weights must not continue it."""
    until: float = math.inf
    """Deadline of the Job, in monotonic seconds."""

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

    def body(self, request_id: str) -> GenerateRequest:
        """The request in the form of vLLM's route."""
        return GenerateRequest(
            request_id=request_id,
            token_ids=list(self.token_ids),
            sampling_params=SamplingParams(
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=self.max_tokens,
                stop_token_ids=self.stop_token_ids,
                ignore_eos=True,  # else the server adds the end tokens of the model's files
                logprobs=0,  # no alternatives: the sampled token's own logprob always comes
            ),
        )


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One response, or a part of one."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each token in the distribution it was sampled from."""
    weight_spans: tuple[WeightSpan, ...]
    """Weight versions of the tokens; positions count from the first of them."""
    finish_reason: str
    """One of `stop`, `length` and `abort`."""

    def followed_by(self, part: "Generation") -> "Generation":
        """This part and the next one as one response, with the next one's finish reason."""
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
        """This response, marked as finished if the abort came only after its last token."""
        reason = self.finish_reason
        if reason == "abort" and self.token_ids and self.token_ids[-1] in request.stop_token_ids:
            reason = "stop"
        elif reason == "abort" and len(self.token_ids) == request.max_tokens:
            reason = "length"
        return msgspec.structs.replace(self, finish_reason=reason)


NOTHING = Generation(token_ids=(), logprobs=(), weight_spans=(), finish_reason="abort")
"""A response before its first token."""


def read_generation(content: bytes, request: TurnRequest) -> Generation:
    """The response in `content`. Raises `Unanswered` for an incomplete answer or one of older
    weights, `Unlabelled` for one of unlabelled weights, and `LLMBroken` for any other that cannot
    be used."""
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
        raw = json.loads(content)  # reads NaN, which msgspec refuses: the error should name it
    except ValueError as error:
        raise Unanswered(f"its answer is not JSON: {error}") from error
    try:
        answer = msgspec.convert(raw, learnt(GenerateAnswer), str_keys=True)
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
    """Raise `Unanswered` if a span is of older weights than a token before it: a retry may reach a
    server that has been updated."""
    newest = min_version
    for span in spans:
        if span.version < newest:
            raise Unanswered(f"its weight version {span.version} comes after version {newest}")
        newest = span.version


def _covers(spans: tuple[WeightSpan, ...], tokens: int) -> bool:
    """Whether `spans` cover the positions from 0 to `tokens` without gap or overlap."""
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
