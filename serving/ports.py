"""Several apps in one process, told apart by the port on which a request came in, each with TLS or
without."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Flask

from serving.admission import Admission, admission_to
from serving.tls import ServerTLS


class ByPort:
    """The WSGI app of all these apps."""

    def __init__(self, apps: Mapping[int, Flask], tls: Mapping[int, ServerTLS]) -> None:
        self._apps = apps
        self._tls = tls
        self._admit = {port: admission_to(app) for port, app in apps.items()}

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        return self._apps[int(environ["SERVER_PORT"])](environ, start_response)

    def admit(self, port: int, method: str, path: str, authorization: str) -> Admission:
        """Decide on a request to the app of `port`; see `serving.admission.Admit`."""
        return self._admit[port](method, path, authorization)

    def tls(self, port: int) -> ServerTLS | None:
        """The TLS of `port`; None if it has none."""
        return self._tls.get(port)
