"""Encoding of messages: msgpack between processes, JSON for people.

In msgpack an array is an extension whose payload is one type letter and the raw little-endian
items; in JSON it is `{"array": "<letter>", "base64": "..."}`. Nothing is ever unpickled.
"""

import base64
import sys
import threading
from array import array
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from rollyard.errors import InvalidMessage

MSGPACK = "application/msgpack"
JSON = "application/json"

T = TypeVar("T")

_ARRAY_EXTENSION = 1
_LETTERS = frozenset("bif")
_UNSPEAKABLE = (NotImplementedError, TypeError, ValueError, OverflowError, RecursionError)
"""Errors of the encoder, such as for an unknown object, a lone surrogate, or an integer beyond 64
bits."""


def encode(message: Any) -> bytes:
    """`message` as msgpack. Raises `InvalidMessage` for a value that cannot be encoded."""
    try:
        return _encoder.encode(message)
    except _UNSPEAKABLE as error:
        raise InvalidMessage(f"cannot encode a {_name(type(message))}: {error}") from error


def decode(data: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    """The message of type `kind` in msgpack `data`. Raises `InvalidMessage`."""
    try:
        decoder: msgspec.msgpack.Decoder[T] = _decoder(cast(Any, kind))
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"not a valid {_name(kind)}: {error}") from error


def encode_json(message: Any) -> bytes:
    """`message` as JSON."""
    return _json_encoder.encode(message)


def decode_json(data: bytes | bytearray, kind: type[T]) -> T:
    """The message of type `kind` in JSON `data`. Raises `InvalidMessage`."""
    try:
        decoder: msgspec.json.Decoder[T] = _json_decoder(cast(Any, kind))
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"not a valid {_name(kind)}: {error}") from error


def learnt(kind: type[T]) -> type[T]:
    """`kind`, for a call of msgspec that is given a type: never pass one without it.

    msgspec keeps what it learns of a Struct from the moment it begins to learn it. A second thread
    that meets the Struct meanwhile uses the half of it, which ends the process by SIGSEGV.
    """
    _json_decoder(cast(Any, kind))
    return kind


def _name(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))


def _raw(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _from_raw(letter: str, raw: bytes | memoryview) -> "array[Any]":
    if letter not in _LETTERS:
        raise ValueError(f"unknown array type {letter!r}")
    values: array[Any] = array(letter)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _to_msgpack(value: Any) -> Any:
    if isinstance(value, array):
        return msgspec.msgpack.Ext(_ARRAY_EXTENSION, value.typecode.encode() + _raw(value))
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def _to_json(value: Any) -> Any:
    if isinstance(value, array):
        return {"array": value.typecode, "base64": base64.b64encode(_raw(value)).decode()}
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def _extension(code: int, data: memoryview) -> Any:
    if code != _ARRAY_EXTENSION or len(data) < 1:
        raise ValueError(f"unknown extension {code}")
    return _from_raw(chr(data[0]), data[1:])


def _from_wire(kind: type, value: Any) -> Any:
    if kind is not array:
        raise NotImplementedError(f"cannot decode {kind}")
    if isinstance(value, array):
        return value
    if isinstance(value, dict):
        return _from_raw(
            str(value.get("array")), base64.b64decode(str(value.get("base64")), validate=True)
        )
    raise ValueError("expected an array of tokens")


_learning = threading.Lock()
"""Held while msgspec learns a type, see `learnt`."""


# To make a decoder of a union takes ten times as long as to decode an event with it.
@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    with _learning:
        return msgspec.msgpack.Decoder(kind, dec_hook=_from_wire, ext_hook=_extension)


@cache
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    with _learning:
        return msgspec.json.Decoder(kind, dec_hook=_from_wire)


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_msgpack)
_json_encoder = msgspec.json.Encoder(enc_hook=_to_json)
