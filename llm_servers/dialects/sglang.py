"""SGLang's native `/generate` with token ids.

- It tells the weight version at the end of a response alone, if somebody gave it one.
- Its logprobs are at the Run's temperature, but not truncated to the nucleus.
- The end tokens of the model's files end a response, too: told to ignore them, it would ignore the
  request's stop tokens with them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from llm_servers.dialects.protocol import LLMCall
from llm_servers.dialects.reading import numbers, read_json
from llm_servers.generation import LLMBroken, TurnRequest
from llm_servers.responses import UncheckedResponse
from rollyard.messages import LogprobKind

SGLANG_GENERATE = "/generate"
ABORT = "/abort_request"


class SGLangSampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters. Every field is sent, so that no default of a model can change one."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    """True if no token ends a response, not even those of `stop_token_ids`."""


class SGLangRequest(msgspec.Struct, frozen=True, kw_only=True):
    input_ids: Sequence[int]
    sampling_params: SGLangSampling
    return_logprob: bool = False
    rid: str = ""
    """Id by which the request can be aborted."""


class FinishReason(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """One of `stop`, `length` and `abort`."""


class MetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    output_token_logprobs: Sequence[tuple[float | None, int, Any]] = ()
    """Logprob, id and text of each token of the response."""
    finish_reason: FinishReason | None = None
    prompt_tokens: int | None = None
    weight_version: str = ""


class SGLangAnswer(msgspec.Struct, frozen=True, kw_only=True):
    meta_info: MetaInfo
    output_ids: Sequence[int] | None = None
    """The response; older servers tell its ids with the logprobs alone."""


class SGLang:
    name = "sglang"
    remedies = {LogprobKind.MODEL: "start it without SGLANG_RETURN_ORIGINAL_LOGPROB"}
    names_model = False

    def generate(self, request: TurnRequest, request_id: str) -> LLMCall:
        sampling = SGLangSampling(
            max_new_tokens=request.max_tokens,
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            stop_token_ids=request.stop_token_ids,
            ignore_eos=not request.stop_token_ids,
        )
        body = SGLangRequest(
            input_ids=list(request.token_ids),
            sampling_params=sampling,
            return_logprob=True,
            rid=_rid(request_id),
        )
        return LLMCall(SGLANG_GENERATE, body)

    def stream(self, request: TurnRequest, request_id: str) -> None:
        return None

    def read(self, content: bytes, request: TurnRequest) -> UncheckedResponse:
        answer = read_json(content, SGLangAnswer)
        told = answer.meta_info
        tokens = tuple(token for _, token, _ in told.output_token_logprobs)
        if answer.output_ids is not None and tuple(answer.output_ids) != tokens:
            raise LLMBroken("its logprobs are of other tokens than its response")
        return UncheckedResponse(
            token_ids=tokens,
            logprobs=numbers(logprob for logprob, _, _ in told.output_token_logprobs),
            finish_reason=told.finish_reason.type if told.finish_reason else "",
            last_version=int(told.weight_version) if told.weight_version.isdecimal() else None,
            prompt_tokens=told.prompt_tokens,
        )

    def abort(self, request_id: str) -> LLMCall:
        return LLMCall(ABORT, {"rid": _rid(request_id)})


def _rid(request_id: str) -> str:
    return f"{request_id}."  # an abort ends all requests whose ids begin like this


SGLANG = SGLang()
