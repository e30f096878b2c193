"""Several apps in one process, told apart by the port on which a request came in."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Flask

from serving.admission import Admission, admission_to


class ByPort:
    """The WSGI app of all these apps."""

    def __init__(self, apps: Mapping[int, Flask]) -> None:
        self._apps = apps
        self._admit = {port: admission_to(app) for port, app in apps.items()}

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        return self._apps[int(environ["SERVER_PORT"])](environ, start_response)

    def admit(self, port: int, method: str, path: str, authorization: str) -> Admission:
        """Decide on a request to the app of `port`; see `serving.admission.Admit`."""
        return self._admit[port](method, path, authorization)
