"""A session with an OpenEnv server: one environment there, as long as the WebSocket lasts.

`POST /reset` and `POST /step` of such a server make a new environment for each request, so that an
episode of several steps has to go over `/ws`. What the server says of failures is told apart here:

- an action that its schema does not know is `ActionRefused`, which is the policy's doing;
- an exception of the environment is `EnvironmentFailed`, as it would be on any server;
- everything else, a full server included, is `Unavailable`.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import requests

from agent_server.environments.protocol import EnvironmentFailed
from agent_server.websocket import WebSocket
from rollyard.codec import decode_json, learnt
from rollyard.errors import InvalidMessage, Unavailable
from rollyard.http import MAX_CONNECT_SECONDS, DirectSession

_MAX_SHOWN_CHARACTERS = 500

T = TypeVar("T")


class Seen(msgspec.Struct, frozen=True):
    """What an environment shows after a reset or a step."""

    observation: dict[str, Any]
    reward: float | bool | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


class ActionRefused(Exception):
    """The server's word that an action, or the arguments of a reset, do not fit its schema."""


class _Said(msgspec.Struct, frozen=True):
    """A message of the server."""

    type: str
    data: dict[str, Any]


class _Schemas(msgspec.Struct, frozen=True):
    """What is read of `/schema`."""

    action: dict[str, Any]


class OpenEnvSession:
    """Owns the connection. Every answer is waited for no longer than `seconds`."""

    def __init__(self, url: str, seconds: float) -> None:
        """Raises `Unavailable`."""
        self._url, self._seconds = url.rstrip("/"), seconds
        self._socket = WebSocket(f"{self._url}/ws", seconds=min(seconds, MAX_CONNECT_SECONDS))

    def reset(self, arguments: Mapping[str, Any]) -> Seen:
        """Raises `ActionRefused`, `EnvironmentFailed` and `Unavailable`."""
        return self._ask("reset", arguments)

    def step(self, action: Mapping[str, Any]) -> Seen:
        """Raises `ActionRefused`, `EnvironmentFailed` and `Unavailable`."""
        return self._ask("step", action)

    def action_schema(self) -> dict[str, Any]:
        """JSON Schema of the environment's actions. Raises `EnvironmentFailed`, `Unavailable`."""
        seconds = (min(self._seconds, MAX_CONNECT_SECONDS), self._seconds)
        try:
            with DirectSession() as http:
                answer = http.get(f"{self._url}/schema", timeout=seconds)
        except requests.RequestException as error:
            reason = f"no answer from the OpenEnv server at {self._url}: {type(error).__name__}"
            raise Unavailable(reason) from None  # the chain would be 100 lines of urllib3
        if answer.status_code != requests.codes.ok:
            raise Unavailable(f"{self._url}/schema answered {answer.status_code}")
        return self._read(answer.content, _Schemas).action

    def close(self) -> None:
        """End the session, from any thread; the server forgets its environment."""
        self._socket.close()

    def _ask(self, kind: str, data: Mapping[str, Any]) -> Seen:
        asked = json.dumps({"type": kind, "data": data})
        said = self._read(self._socket.exchange(asked, seconds=self._seconds).encode(), _Said)
        if said.type != "observation":
            raise self._error(said.data)
        try:
            return msgspec.convert(said.data, learnt(Seen))
        except msgspec.ValidationError as error:
            raise self._unreadable(error) from error

    def _read(self, content: bytes, kind: type[T]) -> T:
        try:
            return decode_json(content, kind)
        except InvalidMessage as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self._url} gave no answer of an OpenEnv server: {error}")

    def _error(self, data: Mapping[str, Any]) -> Exception:
        code, message = data.get("code"), str(data.get("message"))[:_MAX_SHOWN_CHARACTERS]
        if code == "VALIDATION_ERROR":
            return ActionRefused(_mistakes(data.get("errors")) or message)
        reason = f"the OpenEnv server at {self._url} says {code}: {message}"
        if code == "EXECUTION_ERROR":
            return EnvironmentFailed(reason, fix="its log has the traceback")
        fix = "start it with a larger max_concurrent_envs" if code == "CAPACITY_REACHED" else ""
        return Unavailable(reason, fix=fix)


def _mistakes(errors: object) -> str:
    """One clause for each error that pydantic lists."""
    listed = errors if isinstance(errors, list) else []
    return "; ".join(
        f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg')}"
        for each in listed
        if isinstance(each, dict)
    )[:_MAX_SHOWN_CHARACTERS]
