"""Our HTTP view of one LLM server: the routes we use, typed, with errors that name the server.

Only this module and its callers reach a server's control routes.
"""

from array import array
from pathlib import Path
from typing import Any

import msgspec
import requests

from llm_servers.contract import (
    GENERATE,
    JSON,
    GenerateAnswer,
    GenerateRequest,
    SamplingParams,
    TokenLogprob,
)
from rollyard.errors import InvalidMessage, LLMUnavailable
from rollyard.http import DirectSession
from rollyard.logprobs import are_logprobs
from rollyard.messages import LogprobArray, TokenArray

_HEALTH_SECONDS = 2.0
_CONTROL_SECONDS = 30.0
_LOAD_SECONDS = 600.0
_WARM_UP_SECONDS = 120.0


class LLMServer:
    """One LLM server, by URL. Safe to share between threads; every call has a deadline."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session = DirectSession()

    def healthy(self) -> bool:
        try:
            answer = self._session.get(f"{self.url}/health", timeout=_HEALTH_SECONDS)
            return answer.status_code == 200
        except requests.RequestException:
            return False

    def pause(self) -> None:
        """Freeze all generations; they wait for `resume`."""
        self._post("/pause?mode=keep")

    def resume(self) -> None:
        self._post("/resume")

    def paused(self) -> bool:
        return bool(_field(self._get("/is_paused"), "is_paused", bool, self.url))

    def load_weights(self, path: Path) -> None:
        """Take the weights at `path`. After a failure the server holds no usable weights."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
        self._post("/collective_rpc", body, timeout_seconds=_LOAD_SECONDS)

    def reset_prefix_cache(self) -> None:
        answer = self._post("/reset_prefix_cache")
        if not _field(answer, "success", bool, self.url):
            raise LLMUnavailable(f"{self.url} could not reset its prefix cache: blocks are in use")

    def set_version(self, version: int) -> None:
        """Label the weights in force."""
        self._post("/update_weight_version", {"new_version": str(version)})

    def version(self) -> int | None:
        """The label of the weights in force; None if nobody labelled them yet."""
        label = str(_field(self._get("/weight_info"), "weight_version", str, self.url))
        return int(label) if label.isdecimal() else None

    def score(self, token_ids: TokenArray) -> LogprobArray:
        """The logprob of each token given those before it; entry 0 is 0.0."""
        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        answer = self._generate(token_ids, sampling, _CONTROL_SECONDS)
        entries = answer.prompt_logprobs or ()
        if len(entries) != len(token_ids):
            raise LLMUnavailable(
                f"{self.url} scored {len(entries)} tokens of {len(token_ids)}: not its contract"
            )
        scored = zip(token_ids[1:], entries[1:], strict=True)
        return array("f", [0.0, *(self._logprob(entry, token) for token, entry in scored)])

    def warm_up(self) -> None:
        """One short request with all features in use: what is loaded lazily is loaded now."""
        sampling = SamplingParams(max_tokens=2, logprobs=0, prompt_logprobs=0)
        self._generate(array("i", [0, 1]), sampling, _WARM_UP_SECONDS)

    def close(self) -> None:
        self._session.close()

    def _generate(
        self, token_ids: TokenArray, sampling: SamplingParams, timeout_seconds: float
    ) -> GenerateAnswer:
        request = GenerateRequest(token_ids=list(token_ids), sampling_params=sampling)
        answer = self._post(GENERATE, request, timeout_seconds=timeout_seconds)
        try:
            return msgspec.convert(answer, GenerateAnswer, str_keys=True)
        except msgspec.ValidationError as error:
            raise LLMUnavailable(f"{self.url} does not keep to its contract: {error}") from error

    def _logprob(self, entry: dict[int, TokenLogprob] | None, token: int) -> float:
        if entry is None or token not in entry:
            raise LLMUnavailable(f"{self.url} sent no logprob for token {token}")
        value = entry[token].logprob
        if not are_logprobs([value]):
            raise LLMUnavailable(
                f"{self.url} gave token {token} no logprob that is a number",
                fix="its weights are broken: look at its log and at the checkpoint",
            )
        return value

    def _get(self, path: str) -> Any:
        return self._call("GET", path, None, _CONTROL_SECONDS)

    def _post(
        self, path: str, body: object = None, *, timeout_seconds: float = _CONTROL_SECONDS
    ) -> Any:
        return self._call("POST", path, body, timeout_seconds)

    def _call(self, method: str, path: str, body: object, timeout_seconds: float) -> Any:
        url = self.url + path
        try:
            data = None if body is None else msgspec.json.encode(body)
            answer = self._session.request(
                method, url, data=data, headers=JSON, timeout=timeout_seconds
            )
        except requests.Timeout as error:
            raise LLMUnavailable(f"no answer from {url} within {timeout_seconds:g} s") from error
        except requests.RequestException as error:
            raise LLMUnavailable(
                f"no answer from {url}: connection refused or lost",
                fix="is the LLM server running there? its log says why not",
            ) from error
        if 400 <= answer.status_code < 500:
            raise InvalidMessage(f"{url} refused the request: {_reason(answer)}")
        if answer.status_code >= 300:
            raise LLMUnavailable(f"{url} answered {answer.status_code}: {_reason(answer)}")
        try:
            return msgspec.json.decode(answer.content) if answer.content else None
        except msgspec.DecodeError as error:
            raise LLMUnavailable(f"{url} answered something that is not JSON: {error}") from error


def _field(answer: Any, name: str, kind: type, url: str) -> Any:
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise LLMUnavailable(f"{url} sent no {kind.__name__} {name!r}: not its contract")
    return value


def _reason(answer: requests.Response) -> str:
    """vLLM's own words, or the start of whatever came."""
    try:
        return str(msgspec.json.decode(answer.content)["error"]["message"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer.text[:200] or "no reason given"
