"""ProRL's `/generate`: prompt ids in, response ids and logprobs out, and nothing else.

- It says neither why a response ended nor under which weights, and a request cannot be aborted.
- A server may know no stop tokens but the model's own. So a response is cut behind the first token
  that ends it; one that ended otherwise, and short of its limit, cannot be used.
- Some servers sample at a temperature of their own, whatever they are asked for.
"""

import zlib
from collections.abc import Mapping, Sequence

import msgspec

from llm_servers.dialects.protocol import LLMCall
from llm_servers.dialects.reading import numbers, read_json
from llm_servers.generation import TurnRequest
from llm_servers.responses import UncheckedResponse
from rollyard.messages import LogprobKind

PRORL_GENERATE = "/generate"


class ProRLRequest(msgspec.Struct, frozen=True, kw_only=True):
    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    """Seed of this response."""
    stop_token_ids: Sequence[int] = ()
    """Not part of the contract: a server that knows them saves the tokens behind them."""


class ProRLAnswer(msgspec.Struct, frozen=True, kw_only=True):
    response_ids: Sequence[int]
    logprobs: Sequence[float | None] | None = None


class ProRL:
    name = "prorl"
    remedies: Mapping[LogprobKind, str] = {}
    names_model = False

    def generate(self, request: TurnRequest, request_id: str) -> LLMCall:
        body = ProRLRequest(
            prompt_ids=list(request.token_ids),
            max_tokens=request.max_tokens,
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            # Its own for each response: with the same seed, all members of a Group would be alike.
            seed=zlib.crc32(request_id.encode()) >> 1,
            stop_token_ids=request.stop_token_ids,
        )
        return LLMCall(PRORL_GENERATE, body)

    def stream(self, request: TurnRequest, request_id: str) -> None:
        return None

    def read(self, content: bytes, request: TurnRequest) -> UncheckedResponse:
        answer = read_json(content, ProRLAnswer)
        tokens, logprobs = tuple(answer.response_ids), numbers(answer.logprobs or ())
        end = _end(tokens, request)
        if end < len(tokens) == len(logprobs):
            logprobs = logprobs[:end]
        tokens = tokens[:end]
        ended = tokens[-1:] and tokens[-1] in request.stop_token_ids
        full = len(tokens) >= request.max_tokens
        return UncheckedResponse(
            token_ids=tokens,
            logprobs=logprobs,
            finish_reason="length" if full and not ended else "stop",
        )

    def abort(self, request_id: str) -> None:
        return None


def _end(tokens: Sequence[int], request: TurnRequest) -> int:
    """The number of tokens up to the first that ends the response, or of all."""
    ends = (place for place, token in enumerate(tokens, 1) if token in request.stop_token_ids)
    return next(ends, len(tokens))


PRORL = ProRL()
