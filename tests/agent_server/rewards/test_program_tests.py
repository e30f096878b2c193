"""Tests of programs are read from the forms in which public datasets write them."""

import json
from typing import Any

import msgspec
import pytest

from agent_server.rewards.program_tests import MAX_TESTS, CallTest, StdinTest, program_tests
from rollyard.errors import InvalidMessage

ADDING = (StdinTest("1 2\n", "3\n"), StdinTest("3\n4", "7"))
DOUBLING = (CallTest("double", [1], 2), CallTest("double", [[1]], [1, 1]))
APPS_DOUBLING = tuple(msgspec.structs.replace(call, from_apps=True) for call in DOUBLING)


@pytest.mark.parametrize(
    ("written", "tests"),
    [
        ({"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", "7"]}, ADDING),
        ([{"input": "1 2\n", "output": "3\n"}, {"input": "3\n4", "output": "7"}], ADDING),
        ({"fn_name": "double", "inputs": [[1], [[1]]], "outputs": [2, [1, 1]]}, APPS_DOUBLING),
        (
            {"fn_name": "double", "inputs": ["1", "[1]\n"], "outputs": ["2", "[1, 1]"]},
            APPS_DOUBLING,
        ),
        (
            [
                {
                    "input": given,
                    "output": expected,
                    "testtype": "functional",
                    "metadata": metadata,
                }
                for given, expected, metadata in (
                    ("1", "2", {"func_name": "double"}),
                    ("[1]", "[1, 1]", '{"func_name": "double"}'),
                )
            ],
            DOUBLING,
        ),
    ],
    ids=["APPS", "Codeforces", "a function", "a function in JSON", "LiveCodeBench"],
)
def test_public_forms_are_read(written: Any, tests: tuple[Any, ...]) -> None:
    assert program_tests(written, {}).tests == tests
    assert program_tests(json.dumps(written), {}).tests == tests


def test_the_limits_are_those_of_the_row() -> None:
    one = {"inputs": ["1"], "outputs": ["1"]}
    limits = program_tests(one, {"time_limit": 1.5, "memory_limit": 256.0, "index": 7})
    assert (limits.cpu_seconds, limits.memory_bytes) == (2, 256 << 20)
    assert program_tests(one, {"time_limit": None}) == program_tests(one, {})


def test_of_many_tests_those_with_the_longest_inputs_are_run() -> None:
    inputs = ["1" * (each % 50) for each in range(100)]
    tests = program_tests({"inputs": inputs, "outputs": inputs}, {}).tests
    lengths = [len(each.stdin) for each in tests if isinstance(each, StdinTest)]
    assert len(lengths) == MAX_TESTS
    assert min(lengths) == 50 - MAX_TESTS // 2


@pytest.mark.parametrize(
    ("written", "extra"),
    [
        ("", {}),
        ("{", {}),
        ("[" * 100_000, {}),
        ({}, {}),
        ([], {}),
        (["1"], {}),
        ({"inputs": ["1"], "outputs": []}, {}),
        ({"inputs": [1], "outputs": [1]}, {}),
        ({"inputs": ["1"], "outputs": ["1"]}, {"time_limit": "soon"}),
        ({"inputs": ["1"], "outputs": ["1"]}, {"memory_limit": 0}),
        ({"inputs": ["1"], "outputs": ["1"], "fn_name": 7}, {}),
        ({"inputs": ["("], "outputs": ["1"], "fn_name": "f"}, {}),
    ],
)
def test_tests_that_cannot_be_used_are_the_rows_fault(written: Any, extra: Any) -> None:
    with pytest.raises(InvalidMessage, match="tests of a programming row"):
        program_tests(written, extra)
