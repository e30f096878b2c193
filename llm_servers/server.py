"""A typed client of one LLM server, with errors that name the server.

No other module calls the control routes of a server.
"""

import contextlib
from array import array
from pathlib import Path
from typing import TypeVar

import msgspec
import requests

from llm_servers.contract import (
    GENERATE,
    JSON,
    POLICY,
    GenerateAnswer,
    GenerateRequest,
    SamplingParams,
    ServedModel,
    ServedModels,
    TokenLogprob,
)
from rollyard.codec import learnt
from rollyard.errors import InvalidMessage, LLMUnavailable
from rollyard.http import DirectSession
from rollyard.logprobs import are_logprobs
from rollyard.messages import LogprobArray, TokenArray

_HEALTH_SECONDS = 2.0
_CONTROL_SECONDS = 30.0
_LOAD_SECONDS = 600.0
_WARM_UP_SECONDS = 120.0

_CANDIDATE = "candidate"
_POLICY_ID = 1
"""vLLM counts the adapters that it loads; this one it starts with."""

T = TypeVar("T")

_TOKENS_DONE = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")


class LLMSilent(LLMUnavailable):
    """The server takes connections, but did not answer in time."""


class _Paused(msgspec.Struct):
    is_paused: bool


class _Done(msgspec.Struct):
    success: bool


class _Weights(msgspec.Struct):
    weight_version: str


class LLMServer:
    """One LLM server, by URL. Safe to share between threads; every call has a deadline."""

    def __init__(
        self, url: str, token: str = "", *, call_seconds: float = _CONTROL_SECONDS
    ) -> None:
        """`token` is shown with every call, if there is one."""
        self.url = url.rstrip("/")
        self._call_seconds = call_seconds
        self._session = DirectSession()
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def healthy(self) -> bool:
        return not self.why_unhealthy()

    def why_unhealthy(self) -> str:
        """One sentence on why the server is not healthy; empty if it is."""
        try:
            answer = self._session.get(f"{self.url}/health", timeout=_HEALTH_SECONDS)
        except requests.RequestException:
            return f"no answer from the LLM server at {self.url}"
        if answer.status_code != 200:
            return f"the LLM server at {self.url} answers {answer.status_code} to /health"
        return ""

    def context_tokens(self) -> int:
        """Context length: maximum tokens of prompt and response together."""
        models = self._models(_HEALTH_SECONDS)
        told = [model.max_model_len for model in models if model.max_model_len is not None]
        if not told:
            raise LLMUnavailable(f"{self.url} does not tell its context length")
        return min(told)

    def adapter_place(self) -> Path | None:
        """The directory from which it reads the adapter in force; None if it takes no adapters."""
        adapter = self._adapter()
        return Path(adapter.root or "") if adapter is not None else None

    def model_name(self, seconds: float = _CONTROL_SECONDS) -> str:
        """What requests have to name so that the adapter in force counts for them; empty if they
        need not name anything."""
        return POLICY if self._adapter(seconds) is not None else ""

    def model(self) -> Path:
        """The directory of the model that it was started with."""
        return Path(next(each.root or "" for each in self._models() if not each.parent))

    def pause(self) -> None:
        """Freeze all generations, which keep their tokens and wait for `resume`."""
        self._call("POST", "/pause?mode=keep", object)

    def resume(self) -> None:
        self._call("POST", "/resume", object)

    def paused(self, seconds: float = _CONTROL_SECONDS) -> bool:
        return self._call("GET", "/is_paused", _Paused, seconds=seconds).is_paused

    def load_weights(self, path: Path) -> None:
        """Load the weights at `path`. After a failure the server holds no usable weights."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
        self._call("POST", "/collective_rpc", object, body, seconds=_LOAD_SECONDS)

    def try_adapter(self, path: Path) -> None:
        """Have the adapter at `path` loaded under a name that no request has, and dropped again."""
        tried = {"lora_name": _CANDIDATE, "lora_path": str(path), "load_inplace": True}
        self._content("POST", "/v1/load_lora_adapter", tried, seconds=_LOAD_SECONDS)
        with contextlib.suppress(InvalidMessage):  # another process of vLLM's may have loaded it
            self._content("POST", "/v1/unload_lora_adapter", {"lora_name": _CANDIDATE})

    def drop_adapter(self) -> None:
        """Forget the adapter that requests name: the next token has it read from its place."""
        body = {"method": "remove_lora", "kwargs": {"lora_id": _POLICY_ID}}
        self._call("POST", "/collective_rpc", object, body)

    def reset_prefix_cache(self) -> None:
        if not self._call("POST", "/reset_prefix_cache", _Done).success:
            raise LLMUnavailable(f"{self.url} could not reset its prefix cache: blocks are in use")

    def set_version(self, version: int) -> None:
        """Label the loaded weights with their version."""
        self._call("POST", "/update_weight_version", object, {"new_version": str(version)})

    def version(self, seconds: float = _CONTROL_SECONDS) -> int | None:
        """The version of the loaded weights; None if they were not labelled yet."""
        label = self._call("GET", "/weight_info", _Weights, seconds=seconds).weight_version
        return int(label) if label.isdecimal() else None

    def tokens_done(self, seconds: float = _CONTROL_SECONDS) -> float:
        """The number of tokens that it has read and sampled since it started."""
        try:
            text = self._session.get(f"{self.url}/metrics", timeout=seconds).text
        except requests.RequestException as error:
            raise LLMSilent(f"no metrics from {self.url} within {seconds:g} s") from error
        lines = (line for line in text.splitlines() if line.startswith(_TOKENS_DONE))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def score(self, token_ids: TokenArray) -> LogprobArray:
        """float32 [tokens]: logprob of each token given those before it; entry 0 is 0.0."""
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
        """Send a short request that uses all features, so that lazy loading is over after it."""
        sampling = SamplingParams(max_tokens=2, logprobs=0, prompt_logprobs=0)
        self._generate(array("i", [0, 1]), sampling, _WARM_UP_SECONDS)

    def close(self) -> None:
        self._session.close()

    def _generate(
        self, token_ids: TokenArray, sampling: SamplingParams, seconds: float
    ) -> GenerateAnswer:
        request = GenerateRequest(
            token_ids=list(token_ids), sampling_params=sampling, model=self.model_name()
        )
        return self._call("POST", GENERATE, GenerateAnswer, request, seconds=seconds)

    def _models(self, seconds: float | None = None) -> tuple[ServedModel, ...]:
        return self._call("GET", "/v1/models", ServedModels, seconds=seconds).data

    def _adapter(self, seconds: float | None = None) -> ServedModel | None:
        return next((each for each in self._models(seconds) if each.is_adapter), None)

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

    def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: object = None,
        *,
        seconds: float | None = None,
    ) -> T:
        content = self._content(method, path, body, seconds=seconds)
        try:
            return msgspec.json.decode(content or b"null", type=learnt(kind))
        except msgspec.DecodeError as error:
            raise LLMUnavailable(
                f"{self.url}{path} does not answer by its contract: {error}"
            ) from error

    def _content(
        self, method: str, path: str, body: object = None, *, seconds: float | None = None
    ) -> bytes:
        seconds = self._call_seconds if seconds is None else seconds
        url = self.url + path
        data = None if body is None else msgspec.json.encode(body)
        try:
            answer = self._session.request(method, url, data=data, headers=JSON, timeout=seconds)
        except requests.Timeout as error:
            raise LLMSilent(f"no answer from {url} within {seconds:g} s") from error
        except requests.RequestException as error:
            raise LLMUnavailable(
                f"no answer from {url}: connection refused or lost",
                fix="is the LLM server running there? its log says why not",
            ) from error
        if 400 <= answer.status_code < 500:
            raise InvalidMessage(f"{url} refused the request: {_reason(answer)}")
        if answer.status_code >= 300:
            raise LLMUnavailable(f"{url} answered {answer.status_code}: {_reason(answer)}")
        return answer.content


def _reason(answer: requests.Response) -> str:
    """vLLM's error message, or the beginning of any other answer; a few hundred characters."""
    try:
        return str(msgspec.json.decode(answer.content)["error"]["message"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer.text[:200] or "no reason given"
