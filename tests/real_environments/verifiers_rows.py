"""Rows of verifiers' environments, and their rewards without Rollyard, by their own Python."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.real_environments.conftest import TOOLS

PYTHON = TOOLS / "verifiers" / "bin" / "python"
SECONDS = 240.0
REASONING = "verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv"

_WRITE = """
import importlib, json, sys
module, _, member = sys.argv[1].partition(":")
made = getattr(importlib.import_module(module), member or "load_environment")
for row in made(**json.loads(sys.argv[2])).get_dataset():
    print(json.dumps(row))
"""

_PLAY = """
import asyncio, importlib, json, sys
from openai.types.chat import ChatCompletion
from verifiers.clients import OpenAIChatCompletionsClient
from verifiers.types import ClientConfig

row, says = json.loads(sys.argv[1]), json.loads(sys.argv[2])

class Says(OpenAIChatCompletionsClient):
    async def get_native_response(self, *given, **named):
        message = {"role": "assistant", "content": says.pop(0)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        told = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        return ChatCompletion.model_validate({**told, "choices": [choice]})

async def play():
    module, _, member = row["env"].partition(":")
    made = getattr(importlib.import_module(module), member or "load_environment")(**row["args"])
    client = Says(ClientConfig(api_key_var="NONE", api_base_url="http://127.0.0.1:9"))
    state = await made.rollout(row["input"], client, "policy", {})
    await made.rubric.score_rollout(state)
    print(state["reward"])

asyncio.run(play())
"""


def verifiers_rows(env: str, **arguments: Any) -> list[dict[str, Any]]:
    """All rows of the environment's dataset."""
    return [
        {"data_source": "verifiers", "env": env, "args": arguments, "input": json.loads(line)}
        for line in _told(_WRITE, env, arguments)
    ]


def reward_without_rollyard(row: dict[str, Any], says: Sequence[str]) -> float:
    (reward,) = _told(_PLAY, json.dumps(row), says)
    return float(reward)


def _told(program: str, named: str, given: object) -> list[str]:
    command = [str(PYTHON), "-c", program, named, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout.splitlines()
