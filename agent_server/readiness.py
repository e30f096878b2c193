"""What is asked of the LLM servers before any Job depends on them.

Each is asked once how much context it takes and which logprobs it reports, and of its health
every time.
"""

import sys
from collections.abc import Sequence

import msgspec
import requests

from llm_servers.contract import GENERATE, JSON, GenerateRequest, SamplingParams
from llm_servers.generation import read_logprobs
from rollyard.errors import LLMUnavailable

_HEALTH_SECONDS = 2.0
_FIRST_ANSWER_SECONDS = 10.0
"""What is loaded lazily is loaded now."""
_MAX_LIKELY_ALONE = GenerateRequest(
    token_ids=(0,),
    sampling_params=SamplingParams(max_tokens=4, top_k=1, logprobs=0, ignore_eos=True),
)
"""A request whose tokens are certain, however unsure the model is."""
_CERTAIN = -1e-4
"""The logprob of a certain token is 0."""


class _Model(msgspec.Struct):
    max_model_len: int


class _Models(msgspec.Struct):
    data: tuple[_Model, ...]


class Readiness:
    """Of all LLM servers together. Safe to share between threads."""

    def __init__(self, servers: Sequence[str], session: requests.Session) -> None:
        self._servers = servers
        self._session = session
        self._context_tokens: dict[str, int] = {}
        self._exact: set[str] = set()

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt and response together that every server takes."""
        return min(self._context_tokens.values(), default=sys.maxsize)

    def why_not_ready(self) -> str:
        """What is wrong with which LLM server; empty when Jobs can depend on all."""
        return next(filter(None, map(self._why_not, self._servers)), "")

    def _why_not(self, server: str) -> str:
        try:
            answer = self._session.get(f"{server}/health", timeout=_HEALTH_SECONDS)
        except requests.RequestException:
            return f"no answer from the LLM server at {server}"
        if answer.status_code != 200:
            return f"the LLM server at {server} answers {answer.status_code} to /health"
        if server not in self._context_tokens and not self._learn_context(server):
            return f"the LLM server at {server} does not tell its model's context length"
        return "" if server in self._exact else self._why_not_exact(server)

    def _learn_context(self, server: str) -> bool:
        try:
            answer = self._session.get(f"{server}/v1/models", timeout=_HEALTH_SECONDS)
            models = msgspec.json.decode(answer.content, type=_Models)
            self._context_tokens[server] = min(model.max_model_len for model in models.data)
        except (requests.RequestException, msgspec.MsgspecError, ValueError):
            return False
        return True

    def _why_not_exact(self, server: str) -> str:
        """Why its logprobs may be others than those of the distribution it samples from."""
        try:
            answer = self._session.post(
                server + GENERATE,
                data=msgspec.json.encode(_MAX_LIKELY_ALONE),
                headers=JSON,
                timeout=_FIRST_ANSWER_SECONDS,
            )
            logprobs = read_logprobs(answer.content)
        except (requests.RequestException, LLMUnavailable):
            return f"the LLM server at {server} does not answer a request for a few tokens"
        if min(logprobs, default=_CERTAIN) <= _CERTAIN:
            return (
                f"the LLM server at {server} reports logprobs of another distribution than the "
                "one it samples from: start it with --logprobs-mode processed_logprobs"
            )
        self._exact.add(server)
        return ""
