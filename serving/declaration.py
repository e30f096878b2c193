"""Declarations of routes, read from the signatures of their views.

Positional parameters named in the path are text, another positional one is the request's body, and
keyword-only ones are the query. The returned value is the reply: None as `Accepted`, `str` as
plain text, anything else as a message. `OnWire` marks a body or a reply with packed parts; on
`bytes` and `Response` it names the form of what is passed on as it came.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, Union, get_args

import msgspec

from rollyard.errors import RollyardError
from rollyard.messages import Accepted
from rollyard.tokens import Role
from serving.access import Scope
from serving.lanes import Lane

Errors = tuple[type[RollyardError], ...]


class OnWire(msgspec.Struct, frozen=True):
    """Annotation of a body or a reply with packed parts: its type on the wire."""

    kind: Any


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one route. Types keep their `Annotated` metadata."""

    method: str
    path: str
    """Path as Flask writes it, such as `/runs/<run_id>`."""
    name: str
    summary: str
    roles: frozenset[Role]
    path_parameters: dict[str, Any]
    """Name -> type."""
    body: Any
    """Type of the body on the wire; None if the route takes none."""
    reads: Any
    """Type that the view takes: `body`, or one that leaves parts of it packed."""
    max_bytes: int = 0
    """Maximum size of the body; 0 if the route takes none."""
    query: type[msgspec.Struct] | None
    """Parameters of the query, as a struct; None if the route takes none."""
    gives: Any
    """Type of the reply on the wire."""
    packs: bool
    """Whether the view returns it with parts that are packed already."""
    status: int
    """HTTP status of a successful reply."""
    raises: Errors = ()
    """Errors with which the route may refuse."""
    scope: Scope | None = None
    """How it keeps to the Runs of a token, if no parameter of its path names one."""
    lane: Lane | None = None
    """Lane of its calls; None for that of its callers."""


def declaration(
    view: Callable[..., Any], method: str, path: str, roles: frozenset[Role], status: int
) -> Route:
    """The route that `view` declares. Raises `TypeError` if it cannot be one."""
    signature = inspect.signature(view)
    parameters = list(signature.parameters.values())
    in_path = re.findall(r"<(?:\w+:)?(\w+)>", path)
    asked = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    bodies = [p for p in parameters if p not in asked and p.name not in in_path]
    if len(bodies) > 1:
        raise TypeError(f"{method} {path} takes one body, not {len(bodies)}")
    return Route(
        method=method,
        path=path,
        name=view.__name__,
        summary=inspect.getdoc(view) or "",
        roles=roles,
        path_parameters={name: signature.parameters[name].annotation for name in in_path},
        body=_on_wire(bodies[0].annotation) if bodies else None,
        reads=bodies[0].annotation if bodies else None,
        query=_query(view.__name__, asked) if asked else None,
        gives=_on_wire(signature.return_annotation or Accepted),
        packs=_on_wire(signature.return_annotation) is not signature.return_annotation,
        status=status,
    )


def _on_wire(kind: Any) -> Any:
    said = (each.kind for each in getattr(kind, "__metadata__", ()) if isinstance(each, OnWire))
    return next(said, kind)


def _query(name: str, asked: list[inspect.Parameter]) -> type[msgspec.Struct]:
    # There is no null in a query: a parameter may be left out, and `?run=null` names a run.
    fields = [(p.name, _without_none(p.annotation), p.default) for p in asked]
    return msgspec.defstruct(name, fields, frozen=True, forbid_unknown_fields=True)


def _without_none(kind: Any) -> Any:
    if type(None) not in get_args(kind):
        return kind
    return Union[tuple(part for part in get_args(kind) if part is not type(None))]  # noqa: UP007


def as_it_came(kind: Any) -> bool:
    """Whether a body of this type is given to the view as the bytes that came."""
    return kind is bytes or get_args(kind)[:1] == (bytes,)


def is_flag(kind: Any) -> bool:
    """Whether a query parameter of this type may stand without a value: `?more`."""
    return kind is bool
