"""Sandboxes without isolation: what they refuse, what they say, and that they leave nothing."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.settings import UNSAFE_LOCAL, SandboxSettings
from agent_server.sandbox.unsafe_local import UnsafeLocal
from rollyard.errors import InvalidMessage
from tests.llm_fixtures import ROOT
from tests.waiting import until

SETTINGS = SandboxSettings(provider=UNSAFE_LOCAL)
SECONDS = 20.0
SERVER = """
import sys
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.settings import UNSAFE_LOCAL, SandboxSettings
from agent_server.sandbox.unsafe_local import UnsafeLocal
maker = UnsafeLocal(SandboxSettings(provider=UNSAFE_LOCAL))
sandbox = maker.open(SandboxNeeds())
sandbox.bash("setsid sleep 1000 & (setsid sleep 1000 &) &> /dev/null", deadline_seconds=20)
print(maker.ledger.home, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def maker(own_tmp: Path) -> Iterator[UnsafeLocal]:
    made = UnsafeLocal(SETTINGS)
    yield made
    made.close()
    assert list(own_tmp.iterdir()) == []


def processes_of(home: Path) -> list[psutil.Process]:
    """Supervisors of this home, and processes that are at home in it. What removes a directory
    names it, too, and may do so when its sandbox is closed already."""
    found = []
    for process in psutil.process_iter():
        try:
            command, at = process.cmdline(), process.environ().get("HOME", "")
        except psutil.Error:
            continue
        supervises = any("supervisor.py" in word for word in command)
        if str(home) in at or (supervises and any(str(home) in word for word in command)):
            found.append(process)
    return found


@pytest.mark.parametrize(
    ("needs", "named"),
    [
        (SandboxNeeds(image="debian"), "the image 'debian'"),
        (SandboxNeeds(tools=("editor",)), "the tool environment 'editor'"),
        (SandboxNeeds(network=("pypi.org",)), "a way to 'pypi.org' and to nothing else"),
    ],
    ids=str,
)
def test_what_it_cannot_give_is_refused_by_name(
    maker: UnsafeLocal, needs: SandboxNeeds, named: str
) -> None:
    with pytest.raises(InvalidMessage, match=f"{named}, which unsafe-local cannot give"):
        maker.open(needs)


def test_it_says_that_it_is_unsafe_when_it_starts(
    maker: UnsafeLocal, capsys: pytest.CaptureFixture[str]
) -> None:
    UnsafeLocal(SETTINGS).close()
    assert "sandboxes_unsafe" in capsys.readouterr().out
    assert "without isolation" in maker.unsafe


@pytest.mark.parametrize(
    "command",
    [
        "echo x > /workspace/note",
        "echo x>/workspace/note",
        "cd /tmp && echo x > $HOME/note",
        "cd /workspace; echo x > $PWD/note",
        "mkdir /tmp/workspace; echo x > /workspace/note; ls /tmp/workspace",
    ],
)
def test_a_command_that_names_the_workspace_finds_it(maker: UnsafeLocal, command: str) -> None:
    with maker.open(SandboxNeeds()) as sandbox:
        assert sandbox.bash(command, deadline_seconds=SECONDS).exit_code == 0
        assert sandbox.read("/workspace/note", most_bytes=9) == b"x\n"
        shown = sandbox.run(["/bin/cat", "/workspace/note"], deadline_seconds=SECONDS)
        assert shown.output == "x\n"


def test_a_path_that_a_command_has_printed_leads_to_the_same_file(maker: UnsafeLocal) -> None:
    with maker.open(SandboxNeeds()) as sandbox:
        printed = sandbox.bash("touch /tmp/note; ls /tmp/note", deadline_seconds=SECONDS).output
        assert printed.startswith(str(maker.ledger.home))
        again = sandbox.run(["/bin/ls", printed.strip()], deadline_seconds=SECONDS)
        assert again.output == printed


def test_nothing_of_a_command_runs_on_once_it_has_returned(maker: UnsafeLocal) -> None:
    with maker.open(SandboxNeeds()) as sandbox:
        script = "setsid sleep 1000 & (setsid sleep 1000 &) &> /dev/null; sleep 1000 & exit 3"
        result = sandbox.run(["/bin/bash", "-c", script], deadline_seconds=SECONDS)
        assert result.exit_code == 3
        assert processes_of(maker.ledger.home) == []


def test_what_has_ended_its_supervisor_ends_with_the_sandbox(maker: UnsafeLocal) -> None:
    with maker.open(SandboxNeeds()) as sandbox:
        sandbox.bash("sleep 1000 &", deadline_seconds=SECONDS)
        for process in processes_of(maker.ledger.home):
            if any("supervisor.py" in word for word in process.cmdline()):
                process.kill()
        assert processes_of(maker.ledger.home)
    assert processes_of(maker.ledger.home) == []


def test_nothing_runs_on_after_the_server_was_killed(own_tmp: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={"TMPDIR": str(own_tmp)},
    )
    try:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, b"")
        home = Path(
            next(line for line in lines if b"sandboxes_unsafe" not in line).decode().strip()
        )
        assert len(processes_of(home)) > 2
        server.send_signal(signal.SIGKILL)
        server.wait(10)
        until("its commands end by themselves", lambda: not processes_of(home))
    finally:
        server.kill()
        server.communicate()
