"""Access control: every route declares the roles that may call it; there is no default.

- A service without tokens is open; `serving.bind.Bind` keeps it on loopback.
- With tokens, a caller needs one whose role the route names, or the admin's.
- A presented token is compared with every live one, each in constant time.
"""

import hmac
from collections.abc import Collection

from flask import Flask, g, request

from rollyard.errors import Forbidden, Unauthorized
from rollyard.tokens import Role, Tokens
from serving.wrong_tokens import WrongTokens

EVERYONE: frozenset[Role] = frozenset()
"""Roles of a route that requires no token."""
ROLES = "rollyard.roles"
"""Name of the app's extension that has the roles of each endpoint."""


def allow(*roles: Role) -> frozenset[Role]:
    """The roles that may call a route: `roles`, and always the admin's."""
    return frozenset((Role.ADMIN, *roles))


def guard(app: Flask, tokens: Tokens) -> None:
    """Refuse calls that `tokens` do not allow, before their body is read. An endpoint that is not
    in `ROLES` is the admin's alone."""
    declared: dict[str, frozenset[Role]] = app.extensions.setdefault(ROLES, {})
    wrong = WrongTokens()

    @app.before_request
    def check() -> None:
        if not tokens or request.endpoint is None:
            return
        roles = declared.get(request.endpoint, allow())
        if roles == EVERYONE:
            return
        authorization = request.headers.get("Authorization", "")
        address = request.remote_addr or ""
        wrong.check(address)
        try:
            g.role = decide(tokens, authorization, roles)
        except Unauthorized:
            if authorization:
                wrong.note(address, request.path)
            raise


def may_only_read() -> bool:
    """Whether the present request came with a token of the role `read`."""
    return g.get("role") is Role.READ


def decide(tokens: Tokens, authorization: str, allowed: Collection[Role]) -> Role:
    """The caller's role. Raises `Unauthorized` for an unknown caller, `Forbidden` for one whose
    role is not `allowed`."""
    scheme, _, presented = authorization.partition(" ")
    if scheme.lower() != "bearer" or not presented:
        raise Unauthorized(
            "this service requires a token and the request has none",
            fix="give the client a token_file, or set ROLLYARD_TOKEN_FILE",
        )
    role = _role_of(tokens, presented.strip())
    if role is None:
        raise Unauthorized(
            "the request's token is not one of this service's",
            fix="it may have been replaced: read the token file again",
        )
    if role not in allowed:
        wanted = " or ".join(role for role in Role if role in allowed)
        raise Forbidden(f"a token of role {role} may not do this", fix=f"it takes {wanted}")
    return role


def _role_of(tokens: Tokens, presented: str) -> Role | None:
    shown = presented.encode("utf-8", "surrogatepass")
    found = None
    for role, token in tokens:  # to the end, whichever it was: the time taken tells nothing
        if hmac.compare_digest(shown, token.encode()):
            found = role
    return found
