"""An LLM server's answer in the words of no dialect, and the checks that make a `Generation` of it.

An answer is used only if it is complete: one logprob and one weight version for every token.
"""

import msgspec

from llm_servers.generation import Generation, LLMBroken, TurnRequest, Unanswered, Unlabelled
from rollyard.logprobs import are_logprobs
from rollyard.messages import LogprobKind, WeightSpan


class UncheckedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response, not checked yet."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    weight_spans: tuple[WeightSpan, ...] | None = None
    """Weight versions of the tokens; None where the server does not tell them."""
    unlabelled: str = ""
    """What the server calls weights among them that nobody has given a version."""
    last_version: int | None = None
    """Weight version at the end of the response, where the server tells no other."""
    prompt_tokens: int | None = None
    """Length of the prompt that the server saw; None if it does not tell."""

    @property
    def newest_version(self) -> int:
        """The newest weight version that the server tells of; 0 if it tells none."""
        told = (span.version for span in self.weight_spans or ())
        return max((self.last_version or 0, *told))


def checked(
    answer: UncheckedResponse,
    request: TurnRequest,
    *,
    published: int = 0,
    logprobs: LogprobKind = LogprobKind.SAMPLED,
) -> Generation:
    """The response in `answer`. Raises `LLMBroken` for one that cannot be used, `Unlabelled` for
    one of unlabelled weights, and `Unanswered` for one of older weights than the trajectory's.

    `published` is the version published last when the request was sent, which counts where the
    server tells none; `logprobs` is the kind that the server reports.
    """
    if answer.unlabelled:
        raise Unlabelled(f"its weights have no version yet: it calls them {answer.unlabelled!r}")
    spans = answer.weight_spans
    if spans is None:
        spans = _assumed(answer, max(published, request.min_version))
    if logprobs is not LogprobKind.SAMPLED:
        spans = tuple(msgspec.structs.replace(span, logprobs=logprobs) for span in spans)
    generation = Generation(
        token_ids=answer.token_ids,
        logprobs=answer.logprobs,
        weight_spans=spans,
        finish_reason=answer.finish_reason,
    )
    _check(generation, request)
    _refuse_older_weights(spans, request.min_version)
    sent, seen = len(request.token_ids), answer.prompt_tokens
    _require(seen in (None, sent), f"it saw {seen} prompt tokens, {sent} were sent")
    return generation


def _assumed(answer: UncheckedResponse, version: int) -> tuple[WeightSpan, ...]:
    """All tokens as sampled by the weights that were in force when the request was sent."""
    last, tokens = answer.last_version, len(answer.token_ids)
    if tokens == 0:
        return ()
    if last is not None:
        # Versions rise: begun and ended under one version, the response has that alone. Else it may
        # have both, and counts as being of the older one, so that no token seems newer than it is.
        return (
            WeightSpan(version=min(last, version), start=0, end=tokens, assumed=last != version),
        )
    return (WeightSpan(version=version, start=0, end=tokens, assumed=True),)


def _check(generation: Generation, request: TurnRequest) -> None:
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
    _require(
        not any(token in request.stop_token_ids for token in generation.token_ids[:-1]),
        "it goes on behind a token that ends a response",
    )
    _require(_covers(generation.weight_spans, tokens), "its weight versions leave tokens out")


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


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise LLMBroken(problem)
