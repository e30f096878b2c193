"""Calls of Llama 4, LFM2 and others that write Python: `[f(a=1), g(b="x")]`.

The text is parsed and never evaluated: an argument is a literal. Two things that Python refuses are
read all the same: line breaks in strings, and arguments with the name of a keyword, as `from`.
"""

import ast
import keyword
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agent_server.agents.tool_calls.protocol import FoundCall, Part
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolCall, ToolSchema

_TAGS = (("<|python_start|>", "<|python_end|>"), ("<|tool_call_start|>", "<|tool_call_end|>"))
_LOOKS_LIKE_CALLS = re.compile(r"\s*\[\s*[^\W\d][\w.]*\s*\(")
# Python's parser needs some microseconds and some hundred bytes for a character, and holds up all
# other threads meanwhile.
_MAX_CHARACTERS = 100_000
_STRING_OR_KEYWORD = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:KEYWORDS)(?=\s*=)""".replace(
        "KEYWORDS", "|".join(keyword.kwlist)
    ),
    re.DOTALL,
)
_ESCAPE_OR_BREAK = re.compile(r"\\.|[\r\n]", re.DOTALL)
_BREAKS = {"\n": r"\n", "\r": r"\r"}
_RENAMED = "_keyword_"
# The words of JSON, which policies confuse with those of Python.
_JSON_WORDS = {"true": True, "false": False, "null": None}


class Pythonic:
    """A `ToolCallFormat`."""

    marks: Sequence[str] = ("[", *(opening for opening, _ in _TAGS))

    def find(self, text: str, tools: Sequence[ToolSchema]) -> Iterator[Part]:
        if _LOOKS_LIKE_CALLS.match(text):
            yield from _calls(text)
            return
        for opening, closing in _TAGS:
            before, opened, behind = text.partition(opening)
            if opened:
                end = behind.rfind(closing)  # an argument may spell it, too
                yield before
                yield from _calls(behind if end < 0 else behind[:end])
                yield "" if end < 0 else behind[end + len(closing) :]
                return
        yield text

    def render(self, calls: Sequence[ToolCall]) -> str:
        return f"[{', '.join(map(_rendered, calls))}]" if calls else ""

    def matches(self, chat_template: str) -> bool:
        # LFM2's templates may show how it lists tools, and not how it calls them.
        marks = (*(opening for opening, _ in _TAGS), "<|tool_list_start|>")
        return any(mark in chat_template for mark in marks)


def _calls(text: str) -> Iterator[FoundCall | ToolError]:
    try:
        elements = _elements(text)
    except ToolError as error:
        yield error
    else:
        yield from map(_call, elements)


def _elements(text: str) -> list[ast.expr]:
    """The elements of the list that the text is. Raises `ToolError`."""
    if len(text) > _MAX_CHARACTERS:
        raise ToolError(f"the tool calls are longer than {_MAX_CHARACTERS:,} characters")
    try:
        expression = _parsed(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise ToolError(f"the tool calls are not a list of Python calls: {reason}") from error
    if not isinstance(expression, ast.List):
        raise ToolError("the tool calls must stand in brackets: [name(argument=value)]")
    if not expression.elts:
        raise ToolError("the list of tool calls is empty")
    return expression.elts


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        mended = _STRING_OR_KEYWORD.sub(_mended, text)
        if mended == text:
            raise
        try:
            return ast.parse(mended, mode="eval").body
        except SyntaxError:
            raise error from None  # which is about what the policy wrote


def _mended(found: re.Match[str]) -> str:
    if keyword.iskeyword(found[0]):
        return _RENAMED + found[0]
    return _ESCAPE_OR_BREAK.sub(lambda each: _BREAKS.get(each[0], each[0]), found[0])


def _call(element: ast.expr) -> FoundCall | ToolError:
    try:
        if not isinstance(element, ast.Call):
            raise ToolError("a tool call is written name(argument=value)")
        if element.args or any(each.arg is None for each in element.keywords):
            raise ToolError("each argument of a tool call is given by its name")
        arguments = {
            str(each.arg).removeprefix(_RENAMED): _literal(each.value) for each in element.keywords
        }
        return FoundCall(_name(element.func), arguments)
    except ToolError as error:
        return error
    except RecursionError:  # Python parses deeper expressions than it can walk
        return ToolError("the arguments of a tool call are nested too deeply")


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return f"{_name(function.value)}.{function.attr}"
    if isinstance(function, ast.Name):
        return function.id
    raise ToolError("a tool call is written name(argument=value)")


def _literal(value: ast.expr) -> Any:
    """The value of a literal. Raises `ToolError` for any other expression."""
    match value:
        case ast.Constant(value=None | str() | bool() | int() | float() as constant):
            return constant
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(each) for key, each in zip(keys, values, strict=True)}
        case ast.Name(id=word) if word in _JSON_WORDS:
            return _JSON_WORDS[word]
    raise ToolError("an argument of a tool call is a literal, not an expression")


def _key(key: ast.expr | None) -> str:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    raise ToolError("the keys of an object are strings")


def _rendered(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"
