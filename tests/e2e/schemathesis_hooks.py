"""What Schemathesis cannot know: msgpack, and how to make requests that go deep."""

import base64
import contextlib
import os
from typing import Any

import msgspec
import requests
import schemathesis

from rollyard import codec
from rollyard.errors import InvalidMessage

NOBODY = "http://127.0.0.1:9"
"""Registered instead of made-up hosts: it refuses at once, and it is nobody else."""
STORED = ("slots", "ahead", "group_size")
FEW, MANY = 64, 65_536
"""Each is something in Redis: a valid number of them is made a small one, lest the test be about
how much fits."""
MAX_WAIT_SECONDS = 60.0
PATIENCE_SECONDS = 0.2
"""How long a long poll is allowed to be."""


LLM_SERVER = os.environ.get("ROLLYARD_TEST_LLM_SERVER", "")
"""URL of the LLM server for the ProRL door, where one is tested."""
OPEN = ("POST /process", "POST /cancel", "GET /status")
"""Routes of the ProRL door that need it open."""
ROW = {"data_source": "arithmetic", "question": "1+1", "answer": "2"}
PARAMETERS = ("temperature", "top_p", "max_iterations", "max_output_tokens", "max_model_len", "n")


@schemathesis.serializer(codec.MSGPACK)
def to_msgpack(_: object, value: Any) -> Any:
    """What has no place in msgpack goes as JSON would have it, which is not msgpack either."""
    if isinstance(value, bytes):
        return value
    try:
        return codec.encode(value)
    except InvalidMessage:
        return str(value).encode("utf-8", "replace")


@schemathesis.deserializer(codec.MSGPACK)
def from_msgpack(_: object, answer: schemathesis.Response) -> Any:
    return msgspec.msgpack.decode(answer.content, ext_hook=_described)


@schemathesis.hook
def before_call(_: object, case: schemathesis.Case[Any], __: object) -> None:
    route = case.operation.label
    if LLM_SERVER and route in OPEN:
        _open_door(str(case.operation.base_url))
    case.body = _deeper(route, _whole(case.body))
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if PATIENCE_SECONDS < float(case.query["wait_seconds"]) <= MAX_WAIT_SECONDS:
            case.query["wait_seconds"] = PATIENCE_SECONDS


def _open_door(url: str) -> None:
    """Take back what earlier cases have done to the door."""
    token = {"Authorization": f"Bearer {os.environ['ROLLYARD_TEST_TOKEN']}"}
    for path in ("start", "clear_llm_server"):
        requests.post(f"{url}/{path}", headers=token, timeout=20)
    server = {"address": LLM_SERVER}
    requests.post(f"{url}/add_llm_server", json=server, headers=token, timeout=20)


def _described(_: int, raw: memoryview) -> dict[str, str]:
    """An array as the document has it."""
    return {"array": chr(raw[0]), "base64": base64.b64encode(raw[1:]).decode()}


def _whole(value: Any) -> Any:
    """To JSON Schema, 2.0 is an integer; to our codec it is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    return [_whole(part) for part in value] if isinstance(value, list) else value


def _deeper(route: str, body: Any) -> Any:
    """A valid body stays valid and gets further; an invalid one stays as it is."""
    if isinstance(body, list):
        return [_deeper(route, part) for part in body]
    if not isinstance(body, dict):
        return body
    if route == "POST /process":
        return _row(body)
    body = {name: _few(part) if name in STORED else part for name, part in body.items()}
    for name in ("url", "address"):
        if str(body.get(name)).startswith("http"):
            return {**body, name: NOBODY}
    if route == "POST /runs" and body.get("group_size") == 1:
        return {**body, "group_size": 2}
    instance = body.get("instance")
    if isinstance(instance, dict) and instance.get("data_source"):
        return {**body, "instance": {**_in_64_bits(instance), "data_source": "arithmetic"}}
    return {
        name: _deeper(route, part) if name in ("job", "prompt") else part
        for name, part in body.items()
    }


def _row(body: dict[str, Any]) -> dict[str, Any]:
    """A call of the ProRL door: every other one has a row and parameters that are understood."""
    instance, params = body.get("instance"), body.get("sampling_params")
    if not isinstance(instance, dict) or not isinstance(params, dict):
        return body
    if len(params) % 2:
        given = dict(zip(PARAMETERS, params.values(), strict=False))
        return {**body, "sampling_params": given | params, "instance": {**instance, **ROW}}
    few = {"max_iterations": 2, "max_output_tokens": 16, "max_model_len": 200}
    return {**body, "sampling_params": few, "instance": _in_64_bits(instance) | ROW}


def _few(number: Any) -> Any:
    return FEW if isinstance(number, int) and FEW < number <= MANY else number


def _in_64_bits(value: Any) -> Any:
    """A dataset row may hold anything that msgpack can."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return 2**64 - 1
    if isinstance(value, dict):
        return {name: _in_64_bits(part) for name, part in value.items()}
    return [_in_64_bits(part) for part in value] if isinstance(value, list) else value
