"""Results of programs are compared as public judges do, by values of this process alone."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_server.rewards.comparison import same_output, same_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("3\n", "3"),
        ("1 2\n3\n", "1 2  \n3 \n\n"),
        ("\n3", "3"),
        ("0.3333333", "0.3333334"),
        ("1.0 x", "1 x"),
        ("YES", "YES"),
        ("1.0", "1e0"),
    ],
)
def test_output_is_the_same_but_for_blanks_and_rounding(expected: str, printed: str) -> None:
    assert same_output(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("3", "4"),
        ("3", ""),
        ("3", "3 3"),
        ("3", "3\n3"),
        ("1000000", "1000000.5"),
        ("0.5", "0.6"),
        ("0.5", "nan"),
        ("0.5", "0.5" * 100_000),
        ("1.0", "inf"),
        ("YES", "yes"),
        ("3", "\u0663"),
    ],
)
def test_other_output_is_not_the_same(expected: str, printed: str) -> None:
    assert not same_output(expected, printed)


@pytest.mark.parametrize(
    ("expected", "returned"),
    [
        (1, True),
        (True, 1),
        (0, False),
        (None, False),
        ([1], 1),
        ([1, 2], [1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ("1", 1),
        (0.5, 10**400),
        (0.5, float("nan")),
        (0.5, "0.5"),
    ],
)
def test_other_values_are_not_the_same(expected: Any, returned: Any) -> None:
    assert not same_value(expected, returned)


@settings(max_examples=40, deadline=None)
@given(JSON)
def test_every_value_equals_its_own_json(value: Any) -> None:
    assert same_value(value, json.loads(json.dumps(value)))


def test_numbers_are_the_same_within_their_tolerance() -> None:
    assert same_value([1, 0.1 + 0.2], [1.0, 0.3])
    assert not same_value(1, 1.0000001)
