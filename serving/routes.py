"""Routes: each is declared once, and served and described from that declaration.

So the description (`/openapi.json`, for everyone) cannot diverge from the behaviour.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from flask import Flask, Response, request

from rollyard.codec import learnt
from rollyard.errors import Forbidden, InvalidMessage, Unauthorized, Unavailable
from rollyard.messages import Accepted
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import EVERYONE, ROLES, SCOPES, Scope, may_only_read
from serving.admission import admit_by
from serving.api import is_packed, new_app, reply, unpack
from serving.bodies import MAX_SHORT_BODY_BYTES, body
from serving.declaration import Errors, Route, as_it_came, declaration, is_flag
from serving.lanes import Lane
from serving.openapi import describe
from serving.unpacking import Unpacking
from serving.waits import Waits

View = TypeVar("View", bound=Callable[..., Any])


class Routes:
    """The routes of one service. Every service has `/livez` and `/openapi.json`.

    `raises` are the errors that any route may refuse with unless it is open to everyone. A query
    parameter `wait_seconds` makes the call a long poll of at most so many seconds.
    """

    def __init__(self, name: str, tokens: Tokens = NO_TOKENS, *, raises: Errors = ()) -> None:
        self.app: Flask = new_app(name, tokens)
        self.name = name
        self.declared: list[Route] = []
        self._raises = raises
        self._waits = Waits()
        admit_by(self.declared, self.app, tokens)

        @self.get("/livez", EVERYONE)
        def livez() -> str:
            """Whether the service answers at all."""
            return "ok\n"

        @self.get("/openapi.json", EVERYONE)
        def openapi() -> dict[str, Any]:
            """This description."""
            return self._description

    def get(
        self,
        path: str,
        roles: frozenset[Role],
        *,
        raises: Errors = (),
        scope: Scope | None = None,
    ) -> Callable[[View], View]:
        return self._route("GET", path, roles, raises, scope=scope)

    def post(
        self,
        path: str,
        roles: frozenset[Role],
        *,
        raises: Errors = (),
        status: int = 200,
        scope: Scope | None = None,
        max_bytes: int = MAX_SHORT_BODY_BYTES,
        lane: Lane | None = None,
    ) -> Callable[[View], View]:
        admission = {"max_bytes": max_bytes, "lane": lane}
        return self._route("POST", path, roles, raises, status, scope, **admission)

    def _route(
        self,
        method: str,
        path: str,
        roles: frozenset[Role],
        raises: Errors,
        status: int = 200,
        scope: Scope | None = None,
        **admission: Any,
    ) -> Callable[[View], View]:
        """`admission` are further fields of the `Route`, for one with a body."""

        def add(view: View) -> View:
            route = declaration(view, method, path, roles, status)
            common = () if roles == EVERYONE else (Unauthorized, Forbidden, *self._raises)
            invalid = () if route.body is route.query is None else (InvalidMessage,)
            crowded = () if roles == EVERYONE and route.body is None else (Unavailable,)
            route = msgspec.structs.replace(
                route,
                raises=(*invalid, *crowded, *common, *raises),
                scope=scope,
                **({} if route.body is None else admission),
            )
            self.declared.append(route)
            self.app.extensions[ROLES][route.name] = roles
            if scope is not None:
                self.app.extensions[SCOPES][route.name] = scope
            answer = self._answerer(route, view)
            self.app.add_url_rule(path, route.name, answer, methods=[method])
            return view

        return add

    def _answerer(self, route: Route, view: Callable[..., Any]) -> Callable[..., Response]:
        """The view in the form that Flask calls: no parameters but those of the path."""
        ask = None if route.query is None else _asker(route.query)
        unpacking = Unpacking(route.max_bytes)

        def respond(*arguments: object) -> Response:
            asked = ask() if ask else {}
            waits = asked.get("wait_seconds", 0.0) > 0.0
            with self._waits.one(may_only_read()) if waits else nullcontext():
                given = view(*arguments, **asked)
            if isinstance(given, Response):
                return given
            if route.gives is str:
                return Response(given, route.status, mimetype="text/plain")
            given = Accepted() if given is None else given
            return reply(given, route.status, packed=route.gives if route.packs else None)

        def answer(**path: str) -> Response:
            if route.body is None:
                return respond(*path.values())
            request.max_content_length = route.max_bytes
            sent = body()
            if as_it_came(route.reads):
                return respond(*path.values(), bytes(sent))
            with unpacking.of(sent, packed=is_packed()):
                message = unpack(sent, route.body, route.reads)
                sent.clear()  # frees the body's memory, which the request would hold until its end
                return respond(*path.values(), message)

        return answer

    @cached_property
    def _description(self) -> dict[str, Any]:
        return describe(self.name, self.declared)


def _asker(kind: type[msgspec.Struct]) -> Callable[[], dict[str, Any]]:
    flags = {field.name for field in msgspec.structs.fields(kind) if is_flag(field.type)}

    def ask() -> dict[str, Any]:
        asked: dict[str, str] = {}
        for name, values in request.args.lists():
            if len(values) > 1:
                raise InvalidMessage(f"the query says {name!r} {len(values)} times")
            asked[name] = "true" if name in flags and not values[0] else values[0]
        try:
            return msgspec.structs.asdict(msgspec.convert(asked, learnt(kind), strict=False))
        except msgspec.ValidationError as error:
            raise InvalidMessage(
                f"not a valid query: {error}", fix="/openapi.json says what it takes"
            ) from error

    return ask
