"""The checks that vLLM makes of a request, and the shape that it gives its answers."""

import itertools
from typing import Any

import msgspec

from llm_servers.contract import (
    Choice,
    GenerateAnswer,
    GenerateRequest,
    Logprobs,
    TokenLogprob,
    Usage,
    VersionSpan,
)
from llm_servers.scripted.engine import ScriptedGeneration
from rollyard.codec import learnt


class BadRequestError(Exception):
    """A request that cannot be served; the message goes to the caller with status 400."""


def parse(body: bytes, *, vocabulary_size: int, max_model_len: int) -> GenerateRequest:
    """The request in `body`. Raises `BadRequestError`."""
    try:
        request = msgspec.json.decode(body, type=learnt(GenerateRequest))
    except msgspec.MsgspecError as error:
        raise BadRequestError(str(error)) from error
    params, tokens = request.sampling_params, request.token_ids
    if not tokens:
        raise BadRequestError("token_ids: List should have at least 1 item after validation, not 0")
    unknown = [token for token in tokens if not 0 <= token < vocabulary_size]
    if unknown:
        raise BadRequestError(f"Token id {unknown[0]} is out of vocabulary")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise BadRequestError(f"max_tokens must be at least 1, got {params.max_tokens}.")
    if params.temperature < 0:
        raise BadRequestError(f"temperature must be non-negative, got {params.temperature}.")
    if len(tokens) >= max_model_len:
        raise BadRequestError(
            f"The decoder prompt (length {len(tokens)}) is longer than the maximum model length "
            f"of {max_model_len}."
        )
    return request


def response(
    request: GenerateRequest, generation: ScriptedGeneration, scores: list[float] | None
) -> dict[str, Any]:
    """The answer as builtins; `scores` are the logprobs of the prompt, if asked for."""
    drawn = zip(generation.token_ids, generation.logprobs, strict=True)
    content = [TokenLogprob(token_id=token, logprob=value, rank=1) for token, value in drawn]
    choice = Choice(
        finish_reason=generation.finish_reason,
        token_ids=generation.token_ids,
        weight_versions=_spans(generation.versions),
        logprobs=None if request.sampling_params.logprobs is None else Logprobs(content=content),
    )
    answer = GenerateAnswer(
        choices=[choice],
        usage=Usage(
            prompt_tokens=len(request.token_ids), completion_tokens=len(generation.token_ids)
        ),
        prompt_logprobs=None if scores is None else _prompt_logprobs(request, scores),
    )
    whole: dict[str, Any] = msgspec.to_builtins(answer)
    return whole | {"request_id": generation.request_id}


def _spans(versions: list[str]) -> list[VersionSpan]:
    """The maximal runs of tokens that were sampled under one version."""
    found, start = [], 0
    for version, group in itertools.groupby(versions):
        end = start + len(list(group))
        found.append(VersionSpan(version=version, start=start, end=end))
        start = end
    return found


def _prompt_logprobs(
    request: GenerateRequest, scores: list[float]
) -> list[dict[int, TokenLogprob] | None]:
    scored = zip(request.token_ids[1:], scores[1:], strict=True)
    return [None, *({token: TokenLogprob(logprob=value, rank=1)} for token, value in scored)]
