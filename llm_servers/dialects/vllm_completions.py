"""vLLM's `/v1/completions` with token ids, of servers without the token-in, token-out route.

It tells no weight version. A request can be aborted only on a server in development mode.
"""

from collections.abc import Sequence

import msgspec

from llm_servers.contract import Usage
from llm_servers.dialects.protocol import LLMCall
from llm_servers.dialects.reading import numbers, read_json
from llm_servers.dialects.vllm_tokens import REMEDIES
from llm_servers.generation import LLMBroken, TurnRequest
from llm_servers.responses import UncheckedResponse

COMPLETIONS = "/v1/completions"
ABORT = "/abort_requests"
ENGINE_ID = "cmpl-{}-0"
"""Name that vLLM's engine gives to the only prompt of a completions request."""


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. Every field is sent, so that no default of a model can change one."""

    prompt: Sequence[int]
    model: str | None = None
    """Name of the model or adapter; None for the model without an adapter."""
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    """True if the texts beside the logprobs are ids: nobody reads them."""
    request_id: str = ""


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    token_logprobs: Sequence[float | None]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    finish_reason: str | None = None
    """One of `stop`, `length` and `abort`."""
    token_ids: Sequence[int] | None = None
    logprobs: CompletionLogprobs | None = None


class CompletionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    choices: Sequence[CompletionChoice]
    usage: Usage | None = None


class VLLMCompletions:
    name = "vllm-completions"
    remedies = REMEDIES
    names_model = True

    def generate(self, request: TurnRequest, request_id: str) -> LLMCall:
        body = CompletionRequest(
            prompt=list(request.token_ids),
            model=request.model or None,
            max_tokens=request.max_tokens,
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            stop_token_ids=request.stop_token_ids,
            ignore_eos=True,
            logprobs=0,
            return_token_ids=True,
            return_tokens_as_token_ids=True,
            request_id=request_id,
        )
        return LLMCall(COMPLETIONS, body)

    def stream(self, request: TurnRequest, request_id: str) -> None:
        return None

    def read(self, content: bytes, request: TurnRequest) -> UncheckedResponse:
        answer = read_json(content, CompletionAnswer)
        if len(answer.choices) != 1:
            raise LLMBroken(f"it gave {len(answer.choices)} choices, not one")
        (choice,) = answer.choices
        if choice.token_ids is None:
            raise LLMBroken("it gives text alone, no token ids")
        return UncheckedResponse(
            token_ids=tuple(choice.token_ids),
            logprobs=numbers(choice.logprobs.token_logprobs) if choice.logprobs else (),
            finish_reason=choice.finish_reason or "",
            prompt_tokens=answer.usage.prompt_tokens if answer.usage else None,
        )

    def abort(self, request_id: str) -> LLMCall:
        return LLMCall(ABORT, {"request_ids": [ENGINE_ID.format(request_id)]})


VLLM_COMPLETIONS = VLLMCompletions()
