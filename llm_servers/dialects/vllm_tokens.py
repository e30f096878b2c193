"""vLLM's token-in, token-out route, of servers started with `--enable-scale-out`.

It tells the weight version of every token, and ends an aborted request with what it has.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from llm_servers.contract import (
    ABORT,
    GENERATE,
    REQUEST_PREFIX,
    Choice,
    GenerateAnswer,
    GenerateRequest,
    SamplingParams,
    StreamOptions,
    Usage,
    VersionSpan,
)
from llm_servers.dialects.protocol import LLMCall, LLMStream
from llm_servers.dialects.reading import read_json
from llm_servers.generation import LLMBroken, TurnRequest, Unanswered
from llm_servers.responses import UncheckedResponse
from rollyard.messages import LogprobKind, WeightSpan

PROCESSED_LOGPROBS = "start it with --logprobs-mode processed_logprobs"
REMEDIES = {LogprobKind.TEMPERED: PROCESSED_LOGPROBS, LogprobKind.MODEL: PROCESSED_LOGPROBS}


class VLLMTokens:
    name = "vllm-tokens"
    remedies = REMEDIES
    names_model = True

    def generate(self, request: TurnRequest, request_id: str) -> LLMCall:
        return LLMCall(GENERATE, self._asked(request, request_id))

    def stream(self, request: TurnRequest, request_id: str) -> tuple[LLMCall, LLMStream]:
        asked = self._asked(request, request_id)
        options = StreamOptions(include_usage=True)
        body = msgspec.structs.replace(asked, stream=True, stream_options=options)
        return LLMCall(GENERATE, body), TokenStream()

    def read(self, content: bytes, request: TurnRequest) -> UncheckedResponse:
        answer = read_json(content, GenerateAnswer)
        if len(answer.choices) != 1:
            raise LLMBroken(f"it gave {len(answer.choices)} choices, not one")
        (choice,) = answer.choices
        tokens = tuple(choice.token_ids or ())
        return _response(tokens, choice.sampled_logprobs, choice, answer.usage)

    def abort(self, request_id: str) -> LLMCall:
        return LLMCall(ABORT, {"request_ids": [REQUEST_PREFIX + request_id]})

    def _asked(self, request: TurnRequest, request_id: str) -> GenerateRequest:
        return GenerateRequest(
            request_id=request_id,
            model=request.model,
            token_ids=list(request.token_ids),
            sampling_params=SamplingParams(
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                max_tokens=request.max_tokens,
                stop_token_ids=request.stop_token_ids,
                ignore_eos=True,  # else the server adds the end tokens of the model's files
                logprobs=0,  # no alternatives: the sampled token's own logprob always comes
            ),
        )


class TokenEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    choices: Sequence[Choice] = ()
    usage: Usage | None = None
    error: dict[str, Any] | None = None


class TokenStream:
    """A `LLMStream`."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._last = Choice()
        self._usage: Usage | None = None

    def hear(self, event: bytes) -> tuple[int, ...]:
        told = read_json(event, TokenEvent)
        if told.error is not None:
            raise Unanswered(f"it broke a response off: {told.error.get('message')}")
        self._usage = told.usage or self._usage
        for choice in told.choices:
            self._last = choice
            self._tokens += choice.token_ids or ()
            self._logprobs += choice.sampled_logprobs
        return tuple(token for choice in told.choices for token in choice.token_ids or ())

    def read(self) -> UncheckedResponse:
        if self._last.finish_reason is None:
            raise Unanswered("its stream ends in the middle of a response")
        return _response(tuple(self._tokens), tuple(self._logprobs), self._last, self._usage)


def _response(
    tokens: tuple[int, ...], logprobs: tuple[float, ...], ended: Choice, usage: Usage | None
) -> UncheckedResponse:
    """The response of these tokens. Its end tells why it ended, and under which weights."""
    versions = ended.weight_versions or ()
    return UncheckedResponse(
        token_ids=tokens,
        logprobs=logprobs,
        finish_reason=ended.finish_reason or "",
        weight_spans=tuple(_span(each) for each in versions if each.version.isdecimal()),
        unlabelled=next((each.version for each in versions if not each.version.isdecimal()), ""),
        prompt_tokens=usage.prompt_tokens if usage else None,
    )


def _span(span: VersionSpan) -> WeightSpan:
    return WeightSpan(version=int(span.version), start=span.start, end=span.end)


VLLM_TOKENS = VLLMTokens()
