"""The part of vLLM's generate request that Rollyard uses, and the response in vLLM's shape.

Fields of vLLM's that are not listed here are ignored, as is what does not change the answer.
"""

import itertools
import time
from typing import Any

import msgspec

from llm_servers.scripted.engine import Generation

REQUEST_PREFIX = "generate-tokens-"
"""What vLLM puts before a request's id; aborting takes the id with it."""


class BadRequestError(Exception):
    """The request cannot be served; the message goes to the caller with status 400."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    allowed_token_ids: list[int] | None = None
    """The scripted server draws them in turn."""

    @property
    def shapes_nothing(self) -> bool:
        """Whether tokens are drawn from the model's own distribution."""
        shape = (self.temperature, self.top_p, self.top_k, self.min_p)
        return shape == (1.0, 1.0, 0, 0.0) and not self.allowed_token_ids


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    token_ids: list[int]
    sampling_params: SamplingParams
    request_id: str = ""
    model: str | None = None


def parse(body: bytes, *, vocabulary_size: int, max_model_len: int) -> GenerateRequest:
    """The request in `body`, checked as vLLM checks it. Raises `BadRequestError`."""
    try:
        request = msgspec.json.decode(body, type=GenerateRequest)
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


def spans(versions: list[str]) -> list[dict[str, Any]]:
    """One span for each stretch of tokens drawn under the same version."""
    found, start = [], 0
    for version, group in itertools.groupby(versions):
        end = start + len(list(group))
        found.append({"version": version, "start": start, "end": end})
        start = end
    return found


def response(
    request: GenerateRequest, generation: Generation, prompt_logprobs: list[float] | None
) -> dict[str, Any]:
    """The answer in vLLM's shape; fields that vLLM sends as null are left out."""
    drawn = zip(generation.token_ids, generation.logprobs, strict=True)
    content = [{"token_id": token, "logprob": value, "rank": 1} for token, value in drawn]
    choice = {
        "index": 0,
        "finish_reason": generation.finish_reason,
        "stop_reason": None,
        "token_ids": generation.token_ids,
        "weight_versions": spans(generation.versions),
        "logprobs": None if request.sampling_params.logprobs is None else {"content": content},
    }
    return {
        "request_id": generation.request_id,
        "created": int(time.time()),
        "usage": _usage(len(request.token_ids), len(generation.token_ids)),
        "prompt_logprobs": _prompt_logprobs(request.token_ids, prompt_logprobs),
        "output_mode": "tokens",
        "choices": [choice],
    }


def error(status: int, kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _prompt_logprobs(token_ids: list[int], logprobs: list[float] | None) -> list[Any] | None:
    if logprobs is None:
        return None
    scored = zip(token_ids[1:], logprobs[1:], strict=True)
    return [None, *({str(token): {"logprob": value, "rank": 1}} for token, value in scored)]
