"""Rows of NeMo-Gym as calls of a door.

A row is played by the environment that its `data_source` names, or by `nemo_gym`, on the resources
server at its `url`. Of its `responses_create_params`, `temperature`, `top_p` and
`max_output_tokens` are obeyed. Those that would change what is sampled otherwise, or what the
policy is shown, are refused.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from agent_server.prorl.messages import ProcessRequest
from agent_server.prorl.sampling import NEUTRAL
from rollyard.codec import decode_json, encode_json
from rollyard.errors import InvalidMessage
from rollyard.messages import check

ENVIRONMENT = "nemo_gym"
"""The environment of a row that names none."""
PARAMETERS = "responses_create_params"
OBEYED = ("temperature", "top_p", "max_output_tokens")
TASK, ROLLOUT, ROW = "_ng_task_index", "_ng_rollout_index", "_rowidx"
"""Fields that the callers add: the task's number, the rollout's, and the row's in a batch."""
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **NEUTRAL,
    "tool_choice": ("auto",),
    "max_tool_calls": (),
    "previous_response_id": (),
    "prompt": (),
    "text": ({}, {"format": {"type": "text"}}),
}
"""Parameters that are not obeyed, and their values that ask for nothing, beside null."""
NO_LIMIT = 2**31 - 1
"""Tokens of a trajectory: the model's context is the limit."""


def as_request(row: dict[str, Any], max_turns: int) -> ProcessRequest:
    """Raises `InvalidMessage` for what cannot be obeyed."""
    asked = row.get(PARAMETERS)
    if not isinstance(asked, dict):
        raise InvalidMessage(
            f"a row needs {PARAMETERS!r} as an object, got {str(asked)[:100]}",
            fix='a row is {"responses_create_params": {"input": [...]}, ...}',
        )
    for name, given in (asked | _extra_body(asked)).items():
        check(
            name not in UNSUPPORTED or given is None or given in UNSUPPORTED[name],
            f"{PARAMETERS} has {name} = {str(given)[:100]}, which is not supported",
            fix="leave it out: responses are sampled by temperature and top_p alone",
        )
    sampling = {name: asked[name] for name in OBEYED if asked.get(name) is not None}
    sampling |= {"max_iterations": max_turns, "max_model_len": NO_LIMIT}
    instance = {**row, "data_source": row.get("data_source") or ENVIRONMENT}
    return ProcessRequest(instance=instance, sampling_params=sampling)


def task_of(row: Mapping[str, Any]) -> str:
    """The same name for all rollouts of one task, and for no other."""
    if (number := row.get(TASK)) is not None:
        return f"task-{str(number)[:100]}"
    lasting = {name: value for name, value in row.items() if name not in (ROLLOUT, ROW)}
    return sha256(encode_json(lasting)).hexdigest()[:16]


def _extra_body(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What NeMo-Gym hands on to vLLM beside the parameters: JSON in their `metadata`."""
    metadata = asked.get("metadata")
    text = metadata.get("extra_body", "{}") if isinstance(metadata, dict) else "{}"
    try:
        return decode_json(text.encode(errors="replace"), dict[str, Any])
    except (AttributeError, InvalidMessage) as error:
        raise InvalidMessage("metadata.extra_body is not an object in JSON") from error
