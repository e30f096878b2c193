"""Agents of other people, unchanged, as environments: mini-swe-agent, and a short program each with
OpenAI's Agents SDK and with Anthropic's client.

Each has a tool environment of its own, which `make environments` makes.
"""

from pathlib import Path

from agent_server.environments.black_box import BlackBox
from agent_server.environments.protocol import Needs, Opening
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from rollyard.messages import Prompt

_PROGRAMS = Path(__file__).parent
_TOOLS = "/opt/rollyard/tools"
_TASK = "Compute {question}, and write the number and nothing else to the file answer.txt."


def _with(*tools: str) -> Needs:
    return Needs(sandbox=SandboxNeeds(programs=("python3",), tools=tools), agent="command")


class MiniSweAgent(BlackBox):
    needs = _with("mini-swe-agent")
    # The variables keep it from asking a person for its settings, and the network for prices.
    command = f"""
        export MSWEA_CONFIGURED=true MSWEA_COST_TRACKING=ignore_errors
        export LITELLM_LOCAL_MODEL_COST_MAP=True
        {_TOOLS}/mini-swe-agent/bin/python -m minisweagent.run.mini --model openai/policy \\
            --yolo --exit-immediately --cost-limit 0 --task "$(cat task.md)"
    """
    task = _TASK


class _Program(BlackBox):
    """An agent that is a program of ours, made of somebody else's package."""

    name: str
    task = _TASK

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        sandbox.write("agent.py", (_PROGRAMS / self.name).read_bytes())
        return super().start(prompt, sandbox)


class OpenAIAgent(_Program):
    needs = _with("openai-agents")
    name = "with_openai_agents.py"
    command = f"OPENAI_AGENTS_DISABLE_TRACING=1 {_TOOLS}/openai-agents/bin/python agent.py"


class AnthropicAgent(_Program):
    needs = _with("anthropic")
    name = "with_anthropic.py"
    command = f"{_TOOLS}/anthropic/bin/python agent.py"
