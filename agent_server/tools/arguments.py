"""The check of a call's arguments against the JSON Schema of its tool.

Keywords that schemas of tools use are checked: type, enum, const, properties, required,
additionalProperties, items, anyOf, oneOf, minimum and maximum. A tool checks the rest itself. An
argument that the schema does not name is a mistake, unless it has additionalProperties.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolSchema

_IS_TYPE: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}
_MAX_SHOWN_CHARACTERS = 60


def check_arguments(arguments: Mapping[str, Any], tool: ToolSchema) -> None:
    """Raise `ToolError` for the first argument that does not fit the tool's schema."""
    schema = {"additionalProperties": False, **tool.parameters}
    for mistake in _mistakes(arguments, schema, "the call"):
        raise ToolError(f"{mistake}; {_usage(tool)}")


def _mistakes(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    yield from _mistakes_of_value(value, schema, where)
    if isinstance(value, Mapping):
        yield from _mistakes_of_object(value, schema, where)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _mistakes(item, _schema(schema.get("items")), f"{where}[{index}]")


def _mistakes_of_value(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    types = _listed(schema.get("type"))
    if types and not any(_IS_TYPE.get(each, lambda _: True)(value) for each in types):
        yield f"{where} must be of the type {' or '.join(types)}, not {shown(value)}"
    if "enum" in schema and not _among(value, schema["enum"]):
        yield f"{where} must be one of {', '.join(map(repr, schema['enum']))}, not {shown(value)}"
    if "const" in schema and not _among(value, [schema["const"]]):
        yield f"{where} must be {schema['const']!r}, not {shown(value)}"
    if _IS_TYPE["number"](value):
        if value < schema.get("minimum", value):
            yield f"{where} must be at least {schema['minimum']}, not {value}"
        if value > schema.get("maximum", value):
            yield f"{where} must be at most {schema['maximum']}, not {value}"
    for keyword in ("anyOf", "oneOf"):
        choices = schema.get(keyword, ())
        if choices and all(any(_mistakes(value, choice, where)) for choice in choices):
            yield f"{where} fits none of the forms that it may have"


def _mistakes_of_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], where: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where} lacks {name!r}"
    for name, item in value.items():
        if name in properties:
            yield from _mistakes(item, _schema(properties[name]), repr(name))
        elif schema.get("additionalProperties", True) is False:
            yield f"{where} has no {shown(name)}"
        else:
            yield from _mistakes(item, _schema(schema.get("additionalProperties")), repr(name))


def _schema(given: object) -> Mapping[str, Any]:
    """The schema; one that is absent, or true, takes anything."""
    return given if isinstance(given, Mapping) else {}


def _listed(types: object) -> list[str]:
    if isinstance(types, str):
        return [types]
    return list(types) if isinstance(types, list | tuple) else []


def _among(value: Any, choices: Any) -> bool:
    # True is 1 in Python and not in JSON.
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in choices
    )


def _usage(tool: ToolSchema) -> str:
    names = ", ".join(tool.parameters.get("properties", {}))
    return f"{tool.name} takes {names or 'no arguments'}"


def shown(value: Any) -> str:
    """A value as a policy reads it in the middle of a sentence."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN_CHARACTERS else f"{shown[:_MAX_SHOWN_CHARACTERS]}..."
