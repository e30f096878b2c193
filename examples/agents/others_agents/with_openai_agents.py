"""An agent made with OpenAI's Agents SDK: it works on task.md with one tool."""

import subprocess
from pathlib import Path

from agents import Agent, Runner, function_tool


def bash(command: str) -> str:
    """Run a command in bash, and return what it prints.

    Args:
        command: The command.
    """
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


agent = Agent(
    name="solver",
    instructions="Solve the task with the tool bash, then say that it is done.",
    tools=[function_tool(bash)],
    model="policy",
)
print(Runner.run_sync(agent, Path("task.md").read_text(), max_turns=20).final_output)
