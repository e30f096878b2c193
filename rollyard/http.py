"""HTTP calls between Rollyard's processes: msgpack both ways, and the server's errors raised."""

from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import requests
from requests.adapters import HTTPAdapter

from rollyard import codec
from rollyard.errors import (
    KINDS,
    InvalidMessage,
    LaunchError,
    OrchestratorUnavailable,
    RollyardError,
    Unavailable,
)
from rollyard.messages import Failure
from rollyard.trust import TLSRefusal, ca_file_for, refusal, trusting

T = TypeVar("T")

MAX_CONNECT_SECONDS = 5.0
"""Time to connect: a peer that listens accepts at once."""
CONNECTIONS = 64
"""Connections kept open to one peer; further concurrent calls use temporary ones."""


class DirectSession(requests.Session):
    """A session that follows no redirect and uses no proxy of the environment: either would be sent
    the token, too. It keeps so many connections open to one server, and checks certificates by
    `ca_file`, or the file of CAs that `rollyard.trust` finds."""

    def __init__(self, connections: int = 10, ca_file: Path | None = None) -> None:
        super().__init__()
        self.trust_env = False  # also keeps ~/.netrc from replacing the token
        self.mount("http://", HTTPAdapter(pool_maxsize=connections))
        self.mount("https://", _TLSAdapter(ca_file, pool_maxsize=connections))

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class _TLSAdapter(HTTPAdapter):
    """The way to https servers, whose certificates are checked by what `rollyard.trust` finds when
    a call is made: a new file of CAs needs no new session."""

    def __init__(self, ca_file: Path | None, **options: Any) -> None:
        self._ca_file = ca_file
        super().__init__(**options)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> Any:
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        try:
            context = trusting(self._ca_file or ca_file_for(request.url or ""))
        except LaunchError as error:
            raise requests.exceptions.SSLError(error.message) from error
        return host, {"cert_reqs": "CERT_REQUIRED", "ssl_context": context}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Add no CAs to those of the context."""


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
        ca_file: Path | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.name = name
        self._unreachable = unreachable
        self._timeout_seconds = timeout_seconds
        self._session = DirectSession(CONNECTIONS, ca_file)
        self.show_token(token)

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
            refused = refusal(error, self.url)
            reason, fix = refused or TLSRefusal(
                _reason(error), f"is the {self.name} running there? its log says why not"
            )
            failure = self._unreachable(
                f"no answer from {self.name} at {self.url}{path}: {reason}", fix=fix
            )
            failure.lasts = refused is not None
            raise failure from None  # the chain would be 100 lines of urllib3
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


def orchestrator_at(url: str, token: str = "", ca_file: Path | None = None) -> Peer:
    """The orchestrator as the services of its deployment call it."""
    return Peer(
        url,
        name="orchestrator",
        token=token,
        unreachable=OrchestratorUnavailable,
        ca_file=ca_file,
    )


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "it took too long"
    if isinstance(error, requests.ConnectionError):
        return "connection refused or lost"
    return str(error)
