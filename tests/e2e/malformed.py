"""Requests that no client of ours would make, as bytes: seeded, so that a failure comes again."""

import gzip
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

Routes = tuple[tuple[str, str], ...]

JSON_BODIES: tuple[bytes, ...] = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"\xff\xfe{}",
    b"\x00" * 64,
    b'"\\ud800"',
    b'{"run_id": "\\ud800"}',
    b'{"run_id": "a", "run_id": "b"}',
    b'{"run_id": 9' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"group_size": -1}',
    b'{"run_id": "' + b"x" * 2_000_000 + b'"}',
    b'{"run_id": "deep", "group_size": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'[{"prompt_id": "p", "instance": {"data_source": "arithmetic", "x": '
    + b"[" * 900
    + b"]" * 900
    + b"}}]",
    b'[{"prompt_id": "p", "instance": {"data_source": "arithmetic", "x": 1' + b"0" * 4000 + b"}}]",
    b'[{"prompt_id": "p", "instance": {"data_source": "arithmetic", "x": "\\udfff"}}]',
    b'{"run_id": "a", "limits": {"job_seconds": NaN}}',
    b'{"run_id": "a", "sampling": {"temperature": 1e400}}',
)
MSGPACK_BODIES: tuple[bytes, ...] = (
    b"",
    b"\xc1",
    b"\xdd\xff\xff\xff\xff",  # an array of four billion, of which nothing follows
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xffab",
    b"\xc7\x03\x01zzz",
    b"\xc7\x00\x01",
    b"\xd4\x7f\x00",
    b"\x91" * 100_000,
    b"\x81\xa1a" * 50_000,
    b"\xcf" + b"\xff" * 8,
    b"\xcb\x7f\xf8" + b"\x00" * 6,
    b"\xa3\xed\xa0\x80",
    b"\x82\xa6run_id\xa1a\xa8sampling\x81\xabtemperature\xcb\x7f\xf8" + b"\x00" * 6,
)
BOMB = gzip.compress(b" " * 2**20) * 1024
"""Unpacked, a gigabyte: nobody here unpacks what a Content-Encoding says."""
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63 - 1,
    -(2**63),
    1e308,
    float("nan"),
    "",
    "/",
    "../../etc/passwd",
    "a/b/c/d",
    "x" * 10_000,
    "\u0000",
    "\u202e",
    "*",
    [],
    [[[[]]]],
    {},
    {"__class__": "os.system"},
    b"\x00\xff",
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("Content-Type", "application/x-python-pickle"),
    ("Content-Type", "multipart/form-data; boundary="),
    ("Content-Type", "text/xml; charset=\xff"),
    ("Accept", "*/*;q=nan"),
    ("Accept", "application/msgpack;q=2, " * 500),
    ("Content-Encoding", "gzip"),
    ("Range", "bytes=9-1"),
    ("Cookie", "session=" + "a" * 4000),
    ("X-HTTP-Method-Override", "DELETE"),
    ("Transfer-Encoding", "gzip"),
    ("Content-Length", "-1"),
    ("Content-Length", "1, 2"),
    ("Host", "evil.example:99999"),
    ("Authorization", "Bearer \xff\xfe"),
    ("Authorization", "Basic " + "A" * 4000),
)
PATH_PARTS = (
    "%00",
    "%ff",
    "..%2f..",
    "a" * 3000,
    "%F0%9F%92%A9",
    "%2e%2e",
    "*",
    "a%2Fb",
    "'--",
    "%0d%0aX:1",
)
QUERIES = (
    "",
    "?wait_seconds=nan",
    "?wait_seconds=inf",
    "?wait_seconds=1e99",
    "?limit=-1",
    "?limit=%ff",
    "?run=%00",
    "?state=" + "z" * 2000,
    "?more&more=1&more=%00",
    "?&&==&",
)


def malformed_requests(
    routes: Routes, samples: dict[str, Any], token: str, number: int, seed: int
) -> Iterator[bytes]:
    """`number` raw requests to `routes`; `samples` has a good body for each that takes one."""
    dice = random.Random(seed)
    for _ in range(number):
        method, path = dice.choice(routes)
        target = "/".join(
            dice.choice(PATH_PARTS) if part.startswith("<") else part for part in path.split("/")
        )
        if dice.random() < 0.1:
            method = dice.choice(("PUT", "DELETE", "PATCH", "TRACE", "GET", "POST", "FOO"))
        kind, body = _body(dice, samples.get(path))
        coded = {"Content-Encoding": "gzip"} if body is BOMB else {}
        headers = {
            **coded,
            "Host": "localhost",
            "Authorization": f"Bearer {token}",
            "Content-Type": kind,
            "Content-Length": str(len(body)),
        }
        if dice.random() < 0.3:
            name, value = dice.choice(HEADERS)
            headers[name] = value
        lines = [f"{method} {target}{dice.choice(QUERIES)} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        yield "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _body(dice: random.Random, sample: Any) -> tuple[str, bytes]:
    packed = dice.random() < 0.5
    kind = "application/msgpack" if packed else "application/json"
    if dice.random() < 0.02:
        return kind, BOMB
    if sample is None or dice.random() < 0.3:
        return kind, dice.choice(MSGPACK_BODIES if packed else JSON_BODIES)
    if dice.random() < 0.3:
        return kind, _damaged(dice, _encoded(sample, packed))
    return kind, _encoded(_bent(dice, sample), packed)


def _encoded(value: Any, packed: bool) -> bytes:
    if packed:
        return msgspec.msgpack.encode(value)
    return json.dumps(value, default=str).encode()


def _damaged(dice: random.Random, body: bytes) -> bytes:
    """A few bytes changed, dropped or doubled."""
    damaged = bytearray(body)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(damaged) or 1)
        damaged[place : place + dice.randint(0, 2)] = struct.pack("B", dice.randrange(256))
    return bytes(damaged)


def _bent(dice: random.Random, value: Any) -> Any:
    """The value with one thing in it replaced, removed or added."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(sorted(value))
        bent = dict(value)
        if dice.random() < 0.2:
            del bent[key]
        elif dice.random() < 0.1:
            bent["unknown"] = dice.choice(STRANGE)
        else:
            bent[key] = _bent(dice, value[key])
        return bent
    if isinstance(value, list) and value and dice.random() < 0.7:
        return [_bent(dice, value[0]), *value[1:]] * dice.choice((1, 1, 2, 100))
    return dice.choice(STRANGE)
