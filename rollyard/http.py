"""HTTP calls between Rollyard's processes: msgpack both ways, and the server's errors raised."""

from http import HTTPStatus
from typing import TypeVar

import requests
from requests.adapters import HTTPAdapter

from rollyard import codec
from rollyard.errors import (
    KINDS,
    InvalidMessage,
    OrchestratorUnavailable,
    RollyardError,
    Unavailable,
)
from rollyard.messages import Failure

T = TypeVar("T")

MAX_CONNECT_SECONDS = 5.0
"""Time to connect: a peer that listens accepts at once."""
CONNECTIONS = 64
"""Connections kept open to one peer; further concurrent calls use temporary ones."""


class DirectSession(requests.Session):
    """A session that follows no redirect and uses no proxy of the environment: either would be sent
    the token, too."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # also keeps ~/.netrc from replacing the token

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class Peer:
    """Another Rollyard process, by URL. Safe to share between threads.

    A call that cannot be made or answered raises `unreachable`, whose message names the peer;
    an error reply raises the error that the peer raised.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        token: str = "",
        unreachable: type[Unavailable] = Unavailable,
        timeout_seconds: float = 30.0,
    ) -> None:
        self.url = url.rstrip("/")
        self.name = name
        self._unreachable = unreachable
        self._timeout_seconds = timeout_seconds
        self._session = DirectSession()
        self.show_token(token)
        adapter = HTTPAdapter(pool_maxsize=CONNECTIONS)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def show_token(self, token: str) -> None:
        """Use this bearer token from now on; none if it is empty."""
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        else:
            self._session.headers.pop("Authorization", None)

    def get(self, path: str, kind: type[T], *, timeout_seconds: float | None = None) -> T:
        return self._call("GET", path, b"", kind, timeout_seconds)

    def post(
        self, path: str, message: object, kind: type[T], *, timeout_seconds: float | None = None
    ) -> T:
        return self._call("POST", path, codec.encode(message), kind, timeout_seconds)

    def close(self) -> None:
        self._session.close()

    def _call(
        self, method: str, path: str, body: bytes, kind: type[T], timeout_seconds: float | None
    ) -> T:
        seconds = timeout_seconds or self._timeout_seconds
        try:
            answer = self._session.request(
                method,
                self.url + path,
                data=body,
                headers={"Content-Type": codec.MSGPACK, "Accept": codec.MSGPACK},
                timeout=(min(seconds, MAX_CONNECT_SECONDS), seconds),
            )
        except requests.RequestException as error:
            raise self._unreachable(
                f"no answer from {self.name} at {self.url}{path}: {_reason(error)}",
                fix=f"is the {self.name} running there? its log says why not",
            ) from None  # the sentence has the reason; the chain would be 100 lines of urllib3
        if answer.status_code < 300:
            return codec.decode(answer.content, kind)
        if answer.is_redirect:
            raise self._unreachable(
                f"{self.name} at {answer.url} points elsewhere ({answer.status_code}), and no "
                "redirect is followed",
                fix="give the URL of the service itself",
            )
        raise self._error(answer)

    def _error(self, answer: requests.Response) -> RollyardError:
        # Refusals that precede the peer's app are always JSON.
        packed = answer.headers.get("Content-Type") == codec.MSGPACK
        decode = codec.decode if packed else codec.decode_json
        try:
            failure = decode(answer.content, Failure)
        except InvalidMessage:
            return self._unreachable(
                f"{self.name} at {answer.url} answered {answer.status_code} with no reason"
            )
        kind = KINDS.get(failure.code)
        if kind is None:  # the answer of a proxy or of a newer service
            passes = answer.status_code >= 500 or answer.status_code == HTTPStatus.REQUEST_TIMEOUT
            kind = self._unreachable if passes else RollyardError
        return kind(failure.message, fix=failure.fix)


def orchestrator_at(url: str, token: str = "") -> Peer:
    """The orchestrator as the services of its deployment call it."""
    return Peer(url, name="orchestrator", token=token, unreachable=OrchestratorUnavailable)


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "it took too long"
    if isinstance(error, requests.ConnectionError):
        return "connection refused or lost"
    return str(error)
