"""A service's routes as an OpenAPI 3.1 document.

Made from the declarations of its routes and the messages themselves: nothing is written
twice. An array crosses JSON as an object (`rollyard.codec`), and the document says so.
"""

import re
from array import array
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec

from rollyard import codec
from rollyard.errors import RollyardError, TooLarge, Unauthorized, Unavailable
from rollyard.messages import Failure
from serving.declaration import Route, is_flag

ABOUT = """\
Bodies and replies are msgpack where Content-Type and Accept say so, and JSON otherwise.
An array of tokens is `{"array": "i", "base64": "..."}` in JSON: a type letter and the raw
little-endian items. In msgpack it is extension 1, whose payload is the letter and the items.
A refusal is a `Failure`, whose `code` names the error. What is no HTTP request, or comes
too slowly or with too long a head, is refused before a route gets it, in JSON: 400, 408, 414, 417,
431, 501."""
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
ARRAY = {
    "description": "b: int8, i: int32, f: float32, little-endian",
    "type": "object",
    "properties": {
        "array": {"enum": ["b", "f", "i"]},
        "base64": {"type": "string", "contentEncoding": "base64", "pattern": BASE64},
    },
    "required": ["array", "base64"],
    "additionalProperties": False,
}


def describe(title: str, routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document of a service."""
    routes = list(routes)
    paths: dict[str, Any] = {}
    for route in routes:
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("rollyard"), "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": _schemas(_kinds(routes))[1],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        # The entries are alternatives: a token of any of these roles is enough.
        "security": [{"token": [role]} for role in sorted(route.roles)],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {str(route.status): _success(route), **_refusals(route)},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body)}
    return operation


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name, kind in route.path_parameters.items():
        yield {"name": name, "in": "path", "required": True, "schema": _schema(kind)}


def _query_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for field in () if route.query is None else msgspec.structs.fields(route.query):
        default = {} if field.default is None else {"default": field.default}
        schema = {**_schema(field.type), **default}
        parameter: dict[str, Any] = {"name": field.name, "in": "query", "schema": schema}
        if is_flag(field.type):
            parameter["allowEmptyValue"] = True
        yield parameter


def _success(route: Route) -> dict[str, Any]:
    if route.gives is str:
        return {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"description": "The answer.", "content": _content(route.gives)}


def _refusals(route: Route) -> dict[str, Any]:
    kinds: dict[int, list[type[RollyardError]]] = {}
    for kind in dict.fromkeys(route.raises):
        kinds.setdefault(kind.status, []).append(kind)
    refusals = {str(status): _refusal(kinds[status]) for status in sorted(kinds)}
    if route.body is not None:
        refusals["408"] = {"description": "RequestTimeout", "content": _content(Failure)}
        refusals["413"] = {"description": TooLarge.__name__, "content": _content(Failure)}
    return refusals


def _refusal(kinds: list[type[RollyardError]]) -> dict[str, Any]:
    refusal: dict[str, Any] = {
        "description": ", ".join(kind.__name__ for kind in kinds),
        "content": _content(Failure),
    }
    headers = {"Retry-After": Unavailable, "WWW-Authenticate": Unauthorized}
    for name, cause in headers.items():
        if any(issubclass(kind, cause) for kind in kinds):
            refusal["headers"] = {name: {"required": True, "schema": {"type": "string"}}}
    return refusal


def _content(kind: Any) -> dict[str, Any]:
    return {mimetype: {"schema": _schema(kind)} for mimetype in (codec.JSON, codec.MSGPACK)}


def _kinds(routes: Iterable[Route]) -> list[Any]:
    """Every type that the routes name."""
    kinds: list[Any] = [Failure]
    for route in routes:
        fields = () if route.query is None else msgspec.structs.fields(route.query)
        kinds += [route.gives, *route.path_parameters.values(), *(f.type for f in fields)]
        kinds += [] if route.body is None else [route.body]
    return kinds


def _schema(kind: Any) -> Any:
    (schema,), _ = _schemas([kind])
    return schema


def _schemas(kinds: list[Any]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    return msgspec.json.schema_components(
        kinds, schema_hook=_schema_of_array, ref_template="#/components/schemas/{name}"
    )


def _schema_of_array(kind: type) -> dict[str, Any]:
    if kind is not array:
        raise NotImplementedError(f"{kind} has no place on the wire")
    return ARRAY
