"""Admission of requests: lane and body size, decided from the head before the body is read.

The body of a caller that may not call the route is never read: such a request reaches the app
without one, and the app refuses it.
"""

from collections.abc import Callable, Iterable
from urllib.parse import unquote

import msgspec
from flask import Flask
from werkzeug.exceptions import HTTPException

from rollyard.errors import Forbidden, Unauthorized
from rollyard.tokens import Role, Tokens
from serving.access import EVERYONE, check_runs, decide
from serving.bodies import MAX_BODY_BYTES
from serving.declaration import Route
from serving.lanes import Lane, lane_of

_EXTENSION = "rollyard.admission"


class Admission(msgspec.Struct, frozen=True):
    """The lane in which a request is answered, and the body that it may have."""

    lane: Lane
    max_bytes: int
    """Maximum size of its body; 0 if the body is not read."""


Admit = Callable[[str, str, str], Admission]
"""Decides on a request by its method, its path as sent, and its Authorization header."""

STRANGER = Admission(Lane.CALLERS, 0)
"""Admission of a request that the app will refuse."""


def admit_by(routes: Iterable[Route], app: Flask, tokens: Tokens) -> None:
    """Admit the app's requests by the declarations of its routes; `routes` may still grow."""
    urls = app.url_map.bind("")

    def admit(method: str, path: str, authorization: str) -> Admission:
        try:
            endpoint, named = urls.match(unquote(path), method)
        except HTTPException:  # no such route, or a redirect: the app says which
            return STRANGER
        route = next(route for route in routes if route.name == endpoint)
        roles = route.roles
        if tokens and roles != EVERYONE:
            try:
                grant = decide(tokens, authorization, roles)
                check_runs(grant, route.scope, named)
            except (Unauthorized, Forbidden):
                return STRANGER
            # The admin's token may stand for a worker's, so the route decides on its lane; any
            # other role has a lane of its own.
            roles = roles if grant.role is Role.ADMIN else frozenset({grant.role})
        lane = route.lane or lane_of(roles, refuses=bool(route.raises))
        return Admission(lane, route.max_bytes)

    app.extensions[_EXTENSION] = admit


def admission_to(app: Flask) -> Admit:
    """The admission of the app's requests; an app that declares no routes takes every body."""
    every_body = Admission(Lane.CALLERS, MAX_BODY_BYTES)
    admit: Admit = app.extensions.get(_EXTENSION, lambda *_: every_body)
    return admit
