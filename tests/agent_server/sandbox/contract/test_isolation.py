"""What a sandbox keeps from its commands, and from others: all that `unsafe-local` lacks."""

from pathlib import Path

import pytest

from agent_server.sandbox.protocol import (
    FileRefused,
    OpenSandbox,
    SandboxFactory,
    SandboxNeeds,
)
from tests.agent_server.sandbox.contract.isolating import ISOLATING

SECONDS = 20.0

pytestmark = pytest.mark.parametrize("provider", ISOLATING, indirect=True)


def bash(sandbox: OpenSandbox, command: str) -> str:
    return sandbox.bash(command, deadline_seconds=SECONDS).output


def test_a_server_in_the_background_answers_the_commands_of_its_sandbox_alone(
    provider: SandboxFactory, sandbox: OpenSandbox
) -> None:
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 8000)); print('ready', flush=True)"
    )
    bash(sandbox, f"mkfifo p; python3 -c \"{serve}; s.accept()[0].send(b'hello')\" > p & read < p")
    ask = ["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8000 && cat <&3"]
    with provider.open(SandboxNeeds()) as other:
        assert other.run(ask, deadline_seconds=SECONDS).exit_code != 0
    assert sandbox.run(ask, deadline_seconds=SECONDS).output == "hello"


def test_only_its_own_processes_are_seen(sandbox: OpenSandbox) -> None:
    seen = sandbox.run(["/bin/bash", "-c", "echo /proc/[0-9]*"], deadline_seconds=SECONDS)
    assert len(seen.output.split()) <= 3


def test_the_workspace_is_where_its_name_says(sandbox: OpenSandbox) -> None:
    assert bash(sandbox, "pwd") == "/workspace\n"


def test_the_files_of_this_machine_are_not_there(sandbox: OpenSandbox) -> None:
    assert bash(sandbox, f"ls {Path(__file__).parent} {Path.home()} >/dev/null || echo none") != ""
    with pytest.raises(FileRefused, match="no regular file"):
        sandbox.read("/dev/zero", most_bytes=1)
