"""The end of a sandbox, its interruption, and the fresh ones that come from it."""

import threading
from collections.abc import Callable

import pytest

from agent_server.sandbox import session
from agent_server.sandbox.process import kill_first_process
from agent_server.sandbox.protocol import (
    CommandResult,
    OpenSandbox,
    SandboxFactory,
    SandboxNeeds,
    SandboxUnavailable,
)

SECONDS = 20.0


def sh(sandbox: OpenSandbox, script: str) -> CommandResult:
    return sandbox.run(["/bin/bash", "-c", script], deadline_seconds=SECONDS)


def bash(sandbox: OpenSandbox, command: str) -> CommandResult:
    return sandbox.bash(command, deadline_seconds=SECONDS)


@pytest.mark.parametrize("way", [sh, bash])
def test_an_interruption_ends_what_runs_and_keeps_the_files(
    sandbox: OpenSandbox, way: Callable[[OpenSandbox, str], CommandResult]
) -> None:
    sh(sandbox, "mkfifo door; echo kept > note")
    results: list[CommandResult] = []
    running = threading.Thread(
        target=lambda: results.append(way(sandbox, "echo > door; sleep 1000"))
    )
    running.start()
    sh(sandbox, "read < door")
    sandbox.interrupt()
    running.join(SECONDS)
    assert results[0].exit_code == 137
    assert sandbox.read("note", most_bytes=10) == b"kept\n"
    for refused in (sh, bash):
        with pytest.raises(SandboxUnavailable, match="the time for commands is over"):
            refused(sandbox, "true")
    with pytest.raises(SandboxUnavailable):
        sandbox.fresh()


def test_a_sandbox_that_is_readmitted_runs_commands_again(sandbox: OpenSandbox) -> None:
    bash(sandbox, "here=gone; echo kept > note")
    sandbox.interrupt()
    sandbox.readmit()
    assert sh(sandbox, "cat note").output == "kept\n"
    assert bash(sandbox, "echo $here") == CommandResult(exit_code=0, output="\n", restarted=True)


def test_a_session_that_was_killed_and_has_yet_to_end_gets_no_command(
    sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash(sandbox, "here=gone")
    killed: list[int] = []

    def kill_late(pid: int) -> None:
        killed.append(pid)
        if len(killed) > 1:
            kill_first_process(pid)

    monkeypatch.setattr(session, "kill_first_process", kill_late)
    sandbox.interrupt()
    sandbox.readmit()
    assert bash(sandbox, "echo $here") == CommandResult(exit_code=0, output="\n", restarted=True)


def test_a_closed_sandbox_is_not_readmitted_and_refuses_everything(sandbox: OpenSandbox) -> None:
    sandbox.close()
    sandbox.interrupt()
    sandbox.readmit()
    assert not sandbox.alive
    for call in (
        lambda: sh(sandbox, "true"),
        lambda: bash(sandbox, "true"),
        lambda: sandbox.write("note", b""),
        lambda: sandbox.read("note", most_bytes=1),
        sandbox.fresh,
    ):
        with pytest.raises(SandboxUnavailable, match="closed"):
            call()


def test_a_fresh_sandbox_has_nothing_of_the_first(sandbox: OpenSandbox) -> None:
    bash(sandbox, "echo secret | tee note > /tmp/note; here=1")
    with sandbox.fresh() as clean:
        assert clean.bash("ls -A; ls -A /tmp; echo $here", deadline_seconds=SECONDS).output == "\n"
        clean.write("note", b"own")
    with pytest.raises(SandboxUnavailable):
        clean.run(["/bin/true"], deadline_seconds=SECONDS)
    assert sh(sandbox, "cat note").output == "secret\n"


def test_fresh_sandboxes_end_with_the_one_they_come_from(provider: SandboxFactory) -> None:
    with provider.open(SandboxNeeds()) as sandbox:
        clean = sandbox.fresh()
        cleaner = clean.fresh()
        sandbox.interrupt()
        with pytest.raises(SandboxUnavailable, match="the time for commands is over"):
            cleaner.run(["/bin/true"], deadline_seconds=SECONDS)
        sandbox.readmit()
        assert cleaner.run(["/bin/true"], deadline_seconds=SECONDS).exit_code == 0
    for closed in (clean, cleaner):
        with pytest.raises(SandboxUnavailable, match="closed"):
            closed.run(["/bin/true"], deadline_seconds=SECONDS)
