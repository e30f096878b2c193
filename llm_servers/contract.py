"""The part of vLLM's generate route that Rollyard uses, for its clients and the scripted server.

Field names and defaults are vLLM's. Other fields of vLLM's are ignored.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from rollyard.codec import learnt

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
REQUEST_PREFIX = "generate-tokens-"
"""Prefix that vLLM's engine gives to the id of a generate request; abort needs the whole id."""
POLICY = "policy"
"""What the policy is called: the model, or its adapter where the server takes adapters."""
BASE = "base"
"""What the model is called where the server takes adapters."""
JSON = {"Content-Type": "application/json"}


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters. Every field is sent, so that no default of a model can change one."""

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    """True if only `stop_token_ids` end a response, and not the tokens in the model's files."""
    allowed_token_ids: Sequence[int] | None = None


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool = False
    """True if an event without a choice counts the tokens at the end."""


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    token_ids: Sequence[int]
    sampling_params: SamplingParams
    request_id: str = ""
    """Id by which the request can be aborted; if empty, the server chooses one."""
    model: str = ""
    """Name of the model or adapter; if empty, the model without an adapter."""
    stream: bool = False
    """True if the response is to come in server-sent events, each an answer with the next tokens.
    The last of them has the weight versions of all."""
    stream_options: StreamOptions | None = None


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    logprob: float
    token_id: int | None = None
    rank: int | None = None


class Logprobs(msgspec.Struct, frozen=True, kw_only=True):
    content: Sequence[TokenLogprob] | None = None


class VersionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens [start, end) of the response, all sampled under one weight version."""

    version: str
    start: int
    end: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    finish_reason: str | None = None
    """One of `stop`, `length` and `abort`."""
    token_ids: Sequence[int] | None = None
    logprobs: Logprobs | None = None
    weight_versions: Sequence[VersionSpan] | None = None

    @property
    def sampled_logprobs(self) -> tuple[float, ...]:
        """The logprob of each token of the response, as far as they came."""
        entries = self.logprobs.content if self.logprobs else None
        return tuple(entry.logprob for entry in entries or ())


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class GenerateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    choices: Sequence[Choice]
    usage: Usage | None = None
    prompt_logprobs: Sequence[dict[int, TokenLogprob] | None] | None = None
    """Token id -> logprob for each token of the prompt; None for the first token."""


class ServedModel(msgspec.Struct, frozen=True):
    """A model or an adapter in the answer to `/v1/models`."""

    id: str = ""
    max_model_len: int | None = None
    """None for an adapter."""
    root: str | None = None
    """Its directory."""
    parent: str | None = None
    """Of an adapter, the name of its model."""

    @property
    def is_adapter(self) -> bool:
        """Whether it is the adapter that makes the model the policy."""
        return self.id == POLICY and bool(self.parent)


class ServedModels(msgspec.Struct, frozen=True):
    data: Annotated[tuple[ServedModel, ...], msgspec.Meta(min_length=1)]


def policy_among(content: bytes) -> str:
    """What requests have to name so that they get the policy, by an answer to `/v1/models`; empty
    if nothing."""
    try:
        told = msgspec.json.decode(content, type=learnt(ServedModels)).data
    except msgspec.MsgspecError:
        return ""
    return POLICY if any(each.is_adapter for each in told) else ""
