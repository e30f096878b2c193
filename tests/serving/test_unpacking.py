"""What a body holds is counted as it would be unpacked, without being unpacked."""

import json
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollyard import codec
from rollyard.errors import TooLarge, Unavailable
from serving import unpacking
from serving.unpacking import BYTES_FOR_A_VALUE, Unpacking, values_in

MOST = 100_000
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20)
    ),
)


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(count(key) + count(part) for key, part in value.items())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@given(VALUES)
def test_values_in_msgpack_are_counted(value: Any) -> None:
    assert values_in(msgspec.msgpack.encode(value), MOST, packed=True) == count(value)


@pytest.mark.parametrize("length", [0, 1, 2, 4, 8, 16, 17, 300, 70_000])
def test_an_array_of_tokens_is_one_value(length: int) -> None:
    body = codec.encode([array("b", bytes(length)), 1])
    assert values_in(body, MOST, packed=True) == 3


@given(VALUES.filter(lambda value: "binary" not in repr(value)))
def test_no_fewer_values_are_counted_in_json_than_there_are(value: Any) -> None:
    body = msgspec.json.encode(value)
    assert values_in(body, MOST, packed=False) >= count(value)


def test_commas_in_a_text_are_no_values() -> None:
    body = json.dumps([',[{":\\"' * MOST, 1]).encode()
    assert values_in(body, MOST, packed=False) == 3


@pytest.mark.parametrize("packed", [True, False])
def test_a_body_that_holds_too_much_is_too_large(packed: bool) -> None:
    encoder = msgspec.msgpack if packed else msgspec.json
    route = Unpacking(MOST * BYTES_FOR_A_VALUE)
    with route.of(encoder.encode([{}] * (MOST - 1)), packed=packed):
        pass
    much = encoder.encode([{}] * (MOST + 1))
    with pytest.raises(TooLarge, match="more than 100000 values"), route.of(much, packed=packed):
        pass


@given(st.binary(max_size=2000))
def test_whatever_comes_is_counted(body: bytes) -> None:
    assert 0 <= values_in(body, MOST, packed=True) <= len(body)
    assert values_in(body, MOST, packed=False) <= len(body) + 1


def test_of_bodies_that_hold_much_one_is_dealt_with_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unpacking, "PATIENCE_SECONDS", 0.1)
    route = Unpacking(MOST * BYTES_FOR_A_VALUE)
    body = msgspec.msgpack.encode([{}] * unpacking.FEW_VALUES)
    with route.of(body, packed=True):
        with pytest.raises(Unavailable), route.of(body, packed=True):
            pass
        with route.of(bytes(100), packed=True):
            pass  # what holds little never waits
    with route.of(body, packed=True):
        pass
