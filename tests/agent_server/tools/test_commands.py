"""Bash and Python for a policy, in a real sandbox."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import CommandResult, Sandbox, SandboxNeeds
from agent_server.tools.bash import Bash
from agent_server.tools.output import describe, shorten
from agent_server.tools.python import Python


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds(programs=("bash", "python3"))) as opened:
        yield opened


def bash(sandbox: Sandbox, command: str, tool: Bash | None = None) -> str:
    return (tool or Bash()).call({"command": command}, sandbox)


def test_the_policy_reads_output_and_errors_in_their_order(sandbox: Sandbox) -> None:
    assert bash(sandbox, "echo one; echo two >&2; echo three") == "one\ntwo\nthree"


def test_directory_and_variables_are_kept_between_calls(sandbox: Sandbox) -> None:
    assert bash(sandbox, "mkdir -p a/b && cd a/b && name=seven") == "[no output]"
    assert bash(sandbox, 'echo "$name in $PWD"') == "seven in /workspace/a/b"


def test_a_failed_command_tells_its_exit_code(sandbox: Sandbox) -> None:
    assert bash(sandbox, "echo no; (exit 3)") == "no\n[exit code 3]"
    assert bash(sandbox, "false") == "[exit code 1]"


def test_long_output_is_left_out_in_the_middle(sandbox: Sandbox) -> None:
    said = bash(sandbox, "seq 10000", Bash(max_characters=100))
    assert said.startswith("1\n2\n3\n")
    assert said.endswith("\n9999\n10000")
    assert "\n[... 48,794 characters left out ...]\n" in said


def test_a_command_is_stopped_at_its_time_limit_and_the_next_one_runs(sandbox: Sandbox) -> None:
    quick = Bash(deadline_seconds=0.3)
    assert "[stopped at the time limit of 0.3 s]" in bash(sandbox, "echo a; sleep 60", quick)
    assert bash(sandbox, "echo b") == "b"


def test_a_session_that_was_ended_is_told_to_have_begun_anew(sandbox: Sandbox) -> None:
    bash(sandbox, "cd /tmp; touch /workspace/kept")
    said = bash(sandbox, "exit 4") + bash(sandbox, "pwd; ls")
    assert said.count("[the bash session began anew") == 1
    assert "/workspace\nkept" in said


def test_a_script_is_run_and_its_output_read(sandbox: Sandbox) -> None:
    python = Python()
    code = "from pathlib import Path\nPath('a').write_text('kept')\nprint('é')"
    assert python.call({"code": code}, sandbox) == "é"
    assert python.call({"code": "print(open('a').read())"}, sandbox) == "kept"


def test_a_script_that_raises_tells_where(sandbox: Sandbox) -> None:
    said = Python().call({"code": "print(1)\n1 / 0"}, sandbox)
    assert 'File "<stdin>", line 2' in said
    assert said.endswith("ZeroDivisionError: division by zero\n[exit code 1]")


def test_a_script_that_does_not_end_is_stopped(sandbox: Sandbox) -> None:
    said = Python(deadline_seconds=0.5).call({"code": "while True: pass"}, sandbox)
    assert said == "[stopped at the time limit of 0.5 s]"


@given(text=st.text(max_size=300), limit=st.integers(1, 200))
def test_a_shortened_text_keeps_its_ends_and_says_how_much_is_missing(
    text: str, limit: int
) -> None:
    shown = shorten(text, limit)
    if len(text) <= limit:
        assert shown == text
        return
    head, note, tail = shown[: limit // 2], shown[limit // 2 : -(limit - limit // 2)], shown
    assert text.startswith(head)
    assert tail.endswith(text[-(limit - limit // 2) :])
    assert f"{len(text) - limit:,} characters left out" in note


def test_what_ended_a_command_is_told_once() -> None:
    killed = CommandResult(exit_code=137, output="a\n", timed_out=True)
    assert describe(killed, deadline_seconds=5, max_characters=10) == (
        "a\n[stopped at the time limit of 5 s]"
    )
