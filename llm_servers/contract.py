"""The part of vLLM's generate route that Rollyard uses, for those who ask and those who answer.

Field names and defaults are vLLM's. Fields of vLLM's that are not listed here are ignored.
"""

from collections.abc import Sequence

import msgspec

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
REQUEST_PREFIX = "generate-tokens-"
"""What vLLM's engine puts before the id of a generate request; aborting takes the id with it."""
JSON = {"Content-Type": "application/json"}


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Every field is sent, so that no default that comes with a model can change one unseen."""

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
    """True: `stop_token_ids` alone end a response, not those in the model's files."""
    allowed_token_ids: Sequence[int] | None = None


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    token_ids: Sequence[int]
    sampling_params: SamplingParams
    request_id: str = ""
    """Left to the server if empty."""


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    logprob: float
    token_id: int | None = None
    rank: int | None = None


class Logprobs(msgspec.Struct, frozen=True, kw_only=True):
    content: Sequence[TokenLogprob] | None = None


class VersionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens `start` to `end`, counted from the first of the response, drawn under one version."""

    version: str
    start: int
    end: int


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    finish_reason: str | None = None
    """`stop`, `length` or `abort`."""
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
    """For each token of the prompt its logprob, by token id; None for the first."""
