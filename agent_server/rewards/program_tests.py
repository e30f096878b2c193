"""Tests of a programming task, read from the forms in which public datasets write them.

- `{"inputs": [...], "outputs": [...]}` of APPS and TACO, for a function with `fn_name` beside them;
- `[{"input": ..., "output": ..., "testtype": "stdin"}, ...]` of Codeforces and LiveCodeBench, for a
  function with `testtype` `functional` and `metadata` `{"func_name": ...}`;
- either of them as a JSON string.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from rollyard.errors import InvalidMessage

MAX_TESTS = 20
"""Of a row with more, those with the longest inputs are run, as public graders do."""


class StdinTest(msgspec.Struct, frozen=True):
    """A test of what a program prints for its input."""

    stdin: str
    expected: str


class CallTest(msgspec.Struct, frozen=True):
    """A test of what a function, or a method of the class `Solution`, returns."""

    function: str
    arguments: list[Any]
    expected: Any
    from_apps: bool = False
    """True for the form of APPS: the result may stand in a list, and an argument whose keys are all
    whole numbers had numbers for keys."""


Test = StdinTest | CallTest


class ProgramTests(msgspec.Struct, frozen=True, kw_only=True):
    """All tests of one row, and the limits on each."""

    tests: tuple[Test, ...]
    cpu_seconds: int = 6
    memory_bytes: int = 512 << 20


def program_tests(ground_truth: Any, extra_info: Mapping[str, Any]) -> ProgramTests:
    """The tests of a row; `time_limit` (seconds) and `memory_limit` (MB) of its `extra_info` are
    those of Codeforces. Raises `InvalidMessage`."""
    try:
        tests, limits = _tests(_decoded(ground_truth)), _limits(extra_info)
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise _unusable(f"{type(error).__name__}: {error}") from error
    if not tests:
        raise _unusable("there are none")
    longest = sorted(range(len(tests)), key=lambda place: -_length(tests[place]))[:MAX_TESTS]
    return ProgramTests(tests=tuple(tests[place] for place in sorted(longest)), **limits)


def _tests(written: Any) -> list[Test]:
    if not isinstance(written, Mapping):
        return [_case(case) for case in written]
    pairs = zip(written["inputs"], written["outputs"], strict=True)
    function = written.get("fn_name")
    if function:
        calls = (_call(function, given, expected) for given, expected in pairs)
        return [msgspec.structs.replace(call, from_apps=True) for call in calls]
    return [StdinTest(_lines(given), _lines(expected)) for given, expected in pairs]


def _case(case: Mapping[str, Any]) -> Test:
    if case.get("testtype", "stdin") == "stdin":
        return StdinTest(_lines(case["input"]), _lines(case["output"]))
    return _call(_decoded(case["metadata"])["func_name"], case["input"], case["output"])


def _call(function: Any, given: list[Any] | str, expected: Any) -> CallTest:
    """A call with its arguments as a list, or each as JSON on a line, beside JSON of the result."""
    if not isinstance(function, str):
        raise TypeError(f"the name of a function must be text, got {function!r}")
    if isinstance(given, list):
        return CallTest(function, given, expected)
    arguments = [json.loads(line) for line in given.splitlines() if line.strip()]
    return CallTest(function, arguments, json.loads(expected))


def _lines(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "\n".join(text)


def _decoded(written: Any) -> Any:
    return json.loads(written) if isinstance(written, str) else written


def _limits(extra_info: Mapping[str, Any]) -> dict[str, int]:
    limits = {}
    if (seconds := extra_info.get("time_limit")) is not None:
        limits["cpu_seconds"] = math.ceil(float(seconds))
    if (megabytes := extra_info.get("memory_limit")) is not None:
        limits["memory_bytes"] = math.ceil(float(megabytes)) << 20
    if any(value < 1 for value in limits.values()):
        raise ValueError(f"limits must be positive, got {limits}")
    return limits


def _length(test: Test) -> int:
    return len(test.stdin) if isinstance(test, StdinTest) else len(json.dumps(test.arguments))


def _unusable(problem: str) -> InvalidMessage:
    return InvalidMessage(
        f"the tests of a programming row cannot be used: {problem}",
        fix='give them as {"inputs": ["1 2\\n"], "outputs": ["3\\n"]}, for a function with '
        '"fn_name" beside them',
    )
