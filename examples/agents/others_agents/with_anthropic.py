"""An agent made with Anthropic's client: a loop that works on task.md with one tool."""

import subprocess
from pathlib import Path
from typing import Any

from anthropic import Anthropic

BASH = {
    "name": "bash",
    "description": "Run a command in bash, and return what it prints.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


def bash(command: str) -> str:
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


client = Anthropic()
messages: list[dict[str, Any]] = [{"role": "user", "content": Path("task.md").read_text()}]
for _ in range(20):
    answer = client.messages.create(
        model="policy", max_tokens=4096, tools=[BASH], messages=messages
    )
    messages.append({"role": "assistant", "content": answer.content})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": bash(call.input["command"])}
        for call in calls
    ]
    messages.append({"role": "user", "content": results})
