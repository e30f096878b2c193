"""What the head of a request entitles it to, decided before its body is read.

Nobody's body is read whom the route is not open to: such a request goes on without one, and the
app says what is wrong with it.
"""

from collections.abc import Callable, Iterable
from urllib.parse import unquote

import msgspec
from flask import Flask
from werkzeug.exceptions import HTTPException

from rollyard.errors import Forbidden, Unauthorized
from rollyard.tokens import Role, Tokens
from serving.access import EVERYONE, decide
from serving.bodies import MAX_BODY_BYTES
from serving.declaration import Route
from serving.lanes import Lane, lane_of

_EXTENSION = "rollyard.admission"


class Admission(msgspec.Struct, frozen=True):
    lane: Lane
    max_bytes: int
    """Of its body; 0: it is not read."""


Admit = Callable[[str, str, str], Admission]
"""Takes method, path as sent, and the Authorization header."""

STRANGER = Admission(Lane.CALLERS, 0)


def admit_by(routes: Iterable[Route], app: Flask, tokens: Tokens) -> None:
    """Let the app's requests in by the declarations of its routes; `routes` may still grow."""
    urls = app.url_map.bind("")

    def admit(method: str, path: str, authorization: str) -> Admission:
        try:
            endpoint, _ = urls.match(unquote(path), method)
        except HTTPException:
            return STRANGER
        route = next(route for route in routes if route.name == endpoint)
        roles = route.roles
        if tokens and roles != EVERYONE:
            try:
                role = decide(tokens, authorization, roles)
            except (Unauthorized, Forbidden):
                return STRANGER
            # The admin's token may stand for a worker's; everybody else is what they are.
            roles = roles if role is Role.ADMIN else frozenset({role})
        return Admission(lane_of(roles, refuses=bool(route.raises)), route.max_bytes)

    app.extensions[_EXTENSION] = admit


def admission_to(app: Flask) -> Admit:
    """How the app lets requests in; one that declares no routes takes every body."""
    admit: Admit = app.extensions.get(_EXTENSION, _admit_all)
    return admit


def _admit_all(_method: str, _path: str, _authorization: str) -> Admission:
    return Admission(Lane.CALLERS, MAX_BODY_BYTES)
