"""Episodes on a resources server of NeMo-Gym: its tools are HTTP routes, and `/verify` rewards.

A row is one of NeMo-Gym's own, with the server's address added: `{"data_source": "nemo_gym", "url":
"http://127.0.0.1:8001", "responses_create_params": {"input": [...], "tools": [...]}, ...}`. The
policy may call the row's tools; a response without a call ends the episode. What it said and called
goes to `/verify` in the form of OpenAI's Responses API.

The session that `/seed_session` opened is a cookie. A call that the server refuses (4xx) is told to
the policy. An exception of a tool or a verifier (500) is the environment's failure; that nobody
answers is `Unavailable`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
import requests

from agent_server.environments.protocol import EnvironmentFailed, Observation, Opening, Response
from agent_server.sandbox.protocol import Sandbox
from rollyard.codec import decode_json, learnt
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.http import MAX_CONNECT_SECONDS, DirectSession
from rollyard.messages import ChatMessage, Grade, Prompt, ToolCall, ToolSchema, check, check_url

_NO_TOOLS = {"verify", "seed_session", "aggregate_metrics", "mcp"}
"""Routes of every server. A policy that could call them would reward itself."""
_OURS = {"data_source", "url", "seconds"}
_MAX_SHOWN_CHARACTERS = 500
_FIX = (
    'a row is {"data_source": "nemo_gym", "url": "http://127.0.0.1:8001", '
    '"responses_create_params": {"input": [...]}} and what its verifier needs'
)


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Said(msgspec.Struct, frozen=True):
    role: str
    content: str | list[dict[str, Any]]


class _Asked(msgspec.Struct, frozen=True):
    """What is read of the parameters with which NeMo-Gym would call a model."""

    input: str | list[_Said]
    tools: list[_Tool] = []
    instructions: str | None = None


class NemoGymRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a row. Its other fields are the verifier's."""

    url: str
    responses_create_params: _Asked
    seconds: float = 60.0
    """Time for each answer of the server."""

    def __post_init__(self) -> None:
        check_url(self.url)
        check(self.seconds > 0, f"seconds must be positive, got {self.seconds}")
        for tool in self.responses_create_params.tools:
            check(tool.name not in _NO_TOOLS, f"a tool may not be named {tool.name!r}")


class _Verdict(msgspec.Struct, frozen=True):
    """What is read of a verifier's answer."""

    reward: float | bool
    reward_components: dict[str, float] = {}
    mask_sample: bool = False
    """True if the reward measures nothing, since something of the environment failed."""
    failure_reason: str | None = None


class NemoGym:
    def __init__(self) -> None:
        self._http = DirectSession()
        self._output: list[dict[str, Any]] = []
        """What the policy said and called, and what it was answered, in the API's form."""
        self._done = False

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        self._row = row = _row(prompt.instance)
        self._body = {k: v for k, v in prompt.instance.items() if k not in _OURS}
        asked = row.responses_create_params
        self._tools = {tool.name for tool in asked.tools}
        seeded = self._post("seed_session", self._body)
        if not seeded.ok:
            raise InvalidMessage(f"the row is refused: {_shown(seeded)}", fix=_FIX)
        schemas = (ToolSchema(t.name, t.description or "", t.parameters or {}) for t in asked.tools)
        return Opening(messages=tuple(_messages(asked)), tools=tuple(schemas))

    def step(self, response: Response) -> Observation:
        self._output += _items(response, len(self._output))
        answers = tuple(self._answers(response))
        self._done = not answers
        return Observation(messages=answers, done=self._done)

    def grade(self) -> Grade:
        answer = self._post("verify", self._body | {"response": self._response()})
        if not answer.ok:
            raise EnvironmentFailed(f"the verifier of {self._row.url} refused: {_shown(answer)}")
        try:
            verdict = decode_json(answer.content, _Verdict)
            told = decode_json(answer.content, dict[str, Any])
        except InvalidMessage as error:
            raise EnvironmentFailed(f"{self._row.url}/verify gave no reward: {error}") from error
        if verdict.mask_sample:
            raise Unavailable(f"{self._row.url} could not verify: {verdict.failure_reason}")
        # Its answer repeats the row, whose numbers are no figures of this trajectory.
        new = {k: v for k, v in told.items() if k not in self._body and k != "reward"}
        return Grade(
            reward=float(verdict.reward),
            components=verdict.reward_components,
            metrics={k: float(v) for k, v in new.items() if isinstance(v, int | float)},
            reason=f"the verifier gave {float(verdict.reward):g}",
        )

    def close(self) -> None:
        self._http.close()

    def _answers(self, response: Response) -> Iterator[ChatMessage]:
        for call in response.calls:
            said = self._call(call)
            self._output.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": said}
            )
            yield ChatMessage(role="tool", content=said, tool_call_id=call.call_id, name=call.name)
        for reason in response.malformed:
            yield ChatMessage(role="tool", content=f"error: {reason}")

    def _call(self, call: ToolCall) -> str:
        if call.name not in self._tools:
            return f"error: there is no such tool; the tools are: {', '.join(sorted(self._tools))}"
        return self._post(quote(call.name, safe=""), call.arguments).text

    def _post(self, route: str, body: Mapping[str, Any]) -> requests.Response:
        """The answer, which may be a refusal. Raises `Unavailable` and `EnvironmentFailed`."""
        url, seconds = f"{self._row.url.rstrip('/')}/{route}", self._row.seconds
        timeout = (min(seconds, MAX_CONNECT_SECONDS), seconds)
        try:
            answer = self._http.post(url, json=body, timeout=timeout)
        except requests.RequestException as error:
            reason = f"no answer from {url}: {type(error).__name__}"
            raise Unavailable(
                reason, fix="is the resources server running? its log says why not"
            ) from None  # the chain would be 100 lines of urllib3
        if answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
            raise EnvironmentFailed(f"{url} raised {_shown(answer)}")
        if answer.status_code > HTTPStatus.INTERNAL_SERVER_ERROR or answer.is_redirect:
            raise Unavailable(f"{url} answered {answer.status_code}: {_shown(answer)}")
        return answer

    def _response(self) -> dict[str, Any]:
        """The whole episode as one answer of a model."""
        details = None if self._done else {"reason": "max_output_tokens"}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 0,
            "model": "policy",
            "status": "completed" if self._done else "incomplete",
            "incomplete_details": details,
            "output": self._output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": self._body["responses_create_params"].get("tools", []),
        }


def _row(instance: Mapping[str, Any]) -> NemoGymRow:
    try:
        return msgspec.convert(instance, learnt(NemoGymRow))
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"the nemo_gym row is not usable: {error}", fix=_FIX) from error


def _messages(asked: _Asked) -> Iterator[ChatMessage]:
    if asked.instructions:
        yield ChatMessage(role="system", content=asked.instructions)
    if isinstance(asked.input, str):
        yield ChatMessage(role="user", content=asked.input)
        return
    for said in asked.input:
        role = "system" if said.role == "developer" else said.role
        parts: Iterable[Any] = [said.content] if isinstance(said.content, str) else said.content
        text = "".join(part if isinstance(part, str) else part.get("text", "") for part in parts)
        yield ChatMessage(role=role, content=text)


def _items(response: Response, number: int) -> Iterator[dict[str, Any]]:
    """The response in the API's form, with ids that begin at this number."""
    if response.reasoning:
        summary = [{"type": "summary_text", "text": response.reasoning}]
        yield {"id": f"rs_{number}", "type": "reasoning", "summary": summary}
    if response.content or not response.calls:
        text = {"type": "output_text", "text": response.content, "annotations": []}
        yield {
            **{"id": f"msg_{number}", "type": "message", "role": "assistant"},
            **{"status": "completed", "content": [text]},
        }
    for call in response.calls:
        yield {
            **{"id": f"fc_{call.call_id}", "type": "function_call", "call_id": call.call_id},
            **{"name": call.name, "arguments": json.dumps(call.arguments), "status": "completed"},
        }


def _shown(answer: requests.Response) -> str:
    return " ".join(answer.text.split())[:_MAX_SHOWN_CHARACTERS]
