"""The Run's state in a trainer's checkpoint, whatever its rows hold: what was fed can be saved."""

import base64
import json
from typing import Any

from rollyard import codec
from rollyard.errors import InvalidMessage

PACKED = "rollyard.msgpack"
"""Key of an object that stands for a value that JSON has no form for, such as bytes."""


def to_json(content: object) -> str:
    """Raises `InvalidMessage` for what msgpack has no form for, either."""
    return json.dumps(content, default=_packed)


def from_json(text: str) -> Any:
    return json.loads(text, object_hook=_unpacked)


def packed(state: dict[str, Any]) -> dict[str, Any]:
    """A `TrainingRun.state_dict` with its rows as bytes, which `torch.load` reads with
    `weights_only`."""
    rows = {**state["rows"], "waiting": codec.encode(state["rows"]["waiting"])}
    return {**state, "prompts": codec.encode(state["prompts"]), "rows": rows}


def unpacked(state: dict[str, Any]) -> dict[str, Any]:
    rows = {**state["rows"], "waiting": codec.decode(state["rows"]["waiting"], list)}
    return {**state, "prompts": codec.decode(state["prompts"], list), "rows": rows}


def _packed(value: object) -> dict[str, str]:
    try:
        return {PACKED: base64.b64encode(codec.encode([value])).decode()}
    except InvalidMessage as error:
        raise InvalidMessage(
            f"the run's state cannot be saved: {error.message}",
            fix="let the rows, and the dataloader's own state, hold plain values",
        ) from error


def _unpacked(found: dict[str, Any]) -> Any:
    if set(found) != {PACKED}:
        return found
    return codec.decode(base64.b64decode(found[PACKED]), list)[0]
