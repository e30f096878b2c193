"""The clients that agents are built on, as they are published, in environments of their own."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.command import variables
from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from llm_servers.generation import Generation, TurnRequest
from tests.agent_server.fakes import Says
from tests.agent_server.gateway.conftest import MakeTask

TOOLS = Path(__file__).parents[3] / ".venv-tools"
CLIENTS = Path(__file__).parent / "clients"
CALL = 'I look.\n<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'


class Speaks(Says):
    """Says its texts token by token."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        said = super().generate(request, stop)
        if request.hear is not None:
            for token in said.token_ids:
                request.hear((token,))
        return said


@pytest.mark.parametrize(
    ("program", "package", "times"),
    [("with_openai.py", "openai-agents", 4), ("with_anthropic.py", "anthropic", 2)],
)
def test_a_published_client_leads_a_conversation_with_tools_in_streams_and_without(
    gateway: Gateway,
    make_task: MakeTask,
    template: ChatTemplate,
    program: str,
    package: str,
    times: int,
) -> None:
    policy = Speaks(template, *[CALL, "two files"] * times)
    with gateway.open(make_task(policy), StopSignal()) as session:
        ended = subprocess.run(
            [TOOLS / package / "bin" / "python", CLIENTS / program],
            env=os.environ | variables(session.url, session.key),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        trajectory = session.trajectory(truncated=False)
    tokens = len(template.encode("two files")) + 1
    assert json.loads(ended.stdout) == [["I look.", "ls", "two files", tokens]] * times
    assert [len(sequence.turns) for sequence in trajectory.sequences] == [2] * times
