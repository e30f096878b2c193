"""Access control: every route declares the roles that may call it; there is no default.

- A service without tokens is open; `serving.bind.Bind` keeps it on loopback.
- With tokens, a caller needs one whose role the route names, or the admin's.
- A token that is limited to Runs opens the routes that name one of these in their path, and those
  that say how they keep to them (`Scope`); no other.
- A presented token is compared with every live one, each in constant time.
"""

import hmac
from collections.abc import Collection, Mapping
from enum import Enum

from flask import Flask, g, has_request_context, request

from rollyard.errors import Forbidden, Unauthorized
from rollyard.tokens import Grant, Role, Tokens
from serving.wrong_tokens import WrongTokens

EVERYONE: frozenset[Role] = frozenset()
"""Roles of a route that requires no token."""
ROLES = "rollyard.roles"
"""Name of the app's extension that has the roles of each endpoint."""
SCOPES = "rollyard.scopes"
"""Name of the app's extension that has the `Scope` of each endpoint that declares one."""
WRONG_TOKENS = "rollyard.wrong_tokens"
"""Name of the app's extension that counts the wrong tokens of each address."""
NAMES_RUN = ("run_id", "job_id", "name")
"""Parameters of paths that begin with the name of a Run; a slash may follow, and more."""


class Scope(Enum):
    """How a route without a Run in its path keeps to the Runs of a token."""

    WITHIN = "within"
    """The view itself takes and gives only what is of them, by `the_caller`."""
    SHARED = "shared"
    """It takes and gives nothing of any Run."""


_ANYBODY = Grant(Role.ADMIN, "")


def allow(*roles: Role) -> frozenset[Role]:
    """The roles that may call a route: `roles`, and always the admin's."""
    return frozenset((Role.ADMIN, *roles))


def guard(app: Flask, tokens: Tokens) -> None:
    """Refuse calls that `tokens` do not allow, before their body is read. An endpoint that is not
    in `ROLES` is the admin's alone."""
    declared: dict[str, frozenset[Role]] = app.extensions.setdefault(ROLES, {})
    scopes: dict[str, Scope] = app.extensions.setdefault(SCOPES, {})
    wrong = app.extensions[WRONG_TOKENS] = WrongTokens()

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
            grant = decide(tokens, authorization, roles)
            check_runs(grant, scopes.get(request.endpoint), request.view_args or {})
            g.grant = grant
        except Unauthorized:
            if authorization:
                wrong.note(address, request.path)
            raise


def may_only_read() -> bool:
    """Whether the present request came with a token of the role `read`."""
    return the_caller().role is Role.READ


def the_caller() -> Grant:
    """What the caller of the present request may do: everything, on a service without tokens, and
    where there is no request."""
    grant: Grant = g.get("grant", _ANYBODY) if has_request_context() else _ANYBODY
    return grant


def check_run(run_id: str) -> None:
    """Raise `Forbidden` unless the present request's caller may open the Run."""
    _check_opens(the_caller(), run_id)


def check_runs(grant: Grant, scope: Scope | None, path: Mapping[str, str]) -> None:
    """Raise `Forbidden` unless a route of this scope, with these parameters in its path, keeps to
    the Runs of the token."""
    if not grant.runs:
        return
    named = next((path[each] for each in NAMES_RUN if each in path), None)
    if named is not None:
        _check_opens(grant, named.partition("/")[0])
    elif scope is None:
        raise Forbidden(
            "a token that is limited to runs may not do this",
            fix="it takes one that is not",
        )


def _check_opens(grant: Grant, run_id: str) -> None:
    # Whether there is such a Run makes no difference to the answer.
    if not grant.opens(run_id):
        raise Forbidden(
            "this token is limited to other runs", fix="`rollyard token` makes one for this run"
        )


def decide(tokens: Tokens, authorization: str, allowed: Collection[Role]) -> Grant:
    """What the caller may do. Raises `Unauthorized` for an unknown caller, and `Forbidden` for one
    whose role is not `allowed`."""
    scheme, _, presented = authorization.partition(" ")
    if scheme.lower() != "bearer" or not presented:
        raise Unauthorized(
            "this service requires a token and the request has none",
            fix="give the client a token_file, or set ROLLYARD_TOKEN_FILE",
        )
    grant = _grant_of(tokens, presented.strip())
    if grant is None:
        raise Unauthorized(
            "the request's token is not one of this service's",
            fix="it may have been replaced: read the token file again",
        )
    if grant.role not in allowed:
        wanted = " or ".join(role for role in Role if role in allowed)
        raise Forbidden(f"a token of role {grant.role} may not do this", fix=f"it takes {wanted}")
    return grant


def _grant_of(tokens: Tokens, presented: str) -> Grant | None:
    shown = presented.encode("utf-8", "surrogatepass")
    found = None
    for each in tokens:  # to the end, whichever it was: the time taken tells nothing
        if hmac.compare_digest(shown, each.token.encode()):
            found = each
    return found
