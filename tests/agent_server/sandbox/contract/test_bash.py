"""The bash session: what lasts in it, and what it survives."""

import pytest

from agent_server.sandbox.protocol import CommandResult, OpenSandbox

SECONDS = 20.0


def bash(sandbox: OpenSandbox, command: str, deadline_seconds: float = SECONDS) -> CommandResult:
    return sandbox.bash(command, deadline_seconds=deadline_seconds)


def test_a_command_gives_its_output_and_exit_code(sandbox: OpenSandbox) -> None:
    result = bash(sandbox, "echo out; echo err >&2; (exit 7)")
    assert result == CommandResult(exit_code=7, output="out\nerr\n")


def test_directory_variables_functions_and_files_last(sandbox: OpenSandbox) -> None:
    bash(
        sandbox, "mkdir deep; cd deep; word=kept; declare -A table=([key]=value); f() { echo $1; }"
    )
    lasted = bash(sandbox, "dirs; f $word; f ${table[key]}")
    assert lasted.output == "~/deep\nkept\nvalue\n"


def test_background_processes_last(sandbox: OpenSandbox) -> None:
    bash(sandbox, "mkfifo door; cat door > heard & echo begun")
    assert bash(sandbox, "echo hello > door; wait; cat heard").output == "hello\n"


def test_commands_of_both_kinds_see_the_same_files(sandbox: OpenSandbox) -> None:
    bash(sandbox, "echo one > /tmp/one; echo two > two")
    both = sandbox.run(["/bin/cat", "/tmp/one", "two"], deadline_seconds=SECONDS)
    assert both.output == "one\ntwo\n"


def test_the_exit_code_before_is_known(sandbox: OpenSandbox) -> None:
    bash(sandbox, "(exit 3)")
    assert bash(sandbox, "true; false; echo $?").output == "1\n"


def test_a_command_reads_nothing(sandbox: OpenSandbox) -> None:
    assert bash(sandbox, "cat; read line; echo $?").output == "1\n"


def test_a_long_command_of_any_text_arrives_whole(sandbox: OpenSandbox) -> None:
    text = "é'\"\\\n" * 30_000
    result = bash(sandbox, f"cat > big <<'END'\n{text}END\nwc -m < big")
    assert int(result.output) == len(text)


def test_what_no_bash_can_read_fails_the_command(sandbox: OpenSandbox) -> None:
    assert bash(sandbox, "echo a\0b").exit_code == 126
    assert bash(sandbox, "printf %s '\ud800' | wc -c").output == "3\n"


def test_long_output_is_cut_off_and_the_rest_is_dropped(sandbox: OpenSandbox) -> None:
    result = bash(
        sandbox,
        "head -c 100M /dev/zero | tr '\\0' x; exec 2>&1; exit_code() { return 3; }; exit_code",
    )
    assert (result.exit_code, result.truncated) == (3, True)
    assert result.output.endswith("[output truncated]")
    assert bash(sandbox, "echo ok").output == "ok\n"


KEPT = {
    "binary output": "head -c 3000 /bin/bash",
    "an unterminated quote": "echo 'never closed",
    "an unterminated here-document": "cat <<END\nnever ended",
    "an unterminated bracket": "if true; then (",
    "a stray bracket": ") fi }",
    "a child that holds the output": "sleep 1000 &",
    "a daemon": "setsid sleep 1000 &",
    "exec of the output": "exec > /dev/null 2>&1",
    "closed output": "exec 1>&- 2>&-",
    "closed input": "exec 0<&-",
    "another input": "exec < /dev/zero",
    "prompts": "PS1='$(exit 1)'; PS2='\\w'; PROMPT_COMMAND='exit 1'",
    "a trap for interrupts": "trap 'echo never' INT",
    "a trap for every command": "trap 'false' DEBUG ERR RETURN",
    "unset variables are errors": "set -u",
    "a trace of commands": "set -x -v",
    "no globbing, no clobbering": "set -f -C",
    "an empty command": "",
    "a comment": "# nothing",
    "return": "return 3",
    "break": "break; continue",
    "a strange separator": "IFS=0123456789; set -- $*",
    "a read of the session's pipes": "cat <&200; echo 0 >&201",
    # Bash itself has the pipe for exit codes as descriptor 13 while a command runs.
    "nonsense for an exit code": "head -c 3000 /dev/urandom | tr -d '\\0' >&13",
    "aliases": "shopt -s expand_aliases; alias eval=exit builtin=exit source=exit read=exit",
    "functions named as builtins": "read() { exit 1; }; printf() { exit 1; }; eval() { exit 1; }",
    "no PATH": "unset PATH HOME; PATH=/nowhere",
    "a directory that is gone": "mkdir gone; cd gone; rmdir ../gone",
    "job control": "set -m; sleep 1000 & kill %1",
    "POSIX mode": "set -o posix; export POSIXLY_CORRECT=1",
    "another locale": "export LC_ALL=C LANG=xx_YY; LC_ALL=nonsense",
    "a reader that goes away": "yes | head -1",
}
"""What a session survives."""

LOST = {
    "exit": ("exit 3", 3),
    "a failure where those end bash": ("set -e; (exit 4)", 4),
    "an unset variable where those end bash": ("set -u; echo $nothing", 127),
    "exec of a program": ("exec /bin/sh -c 'exit 5'", 5),
    "a kill of itself": ("kill -9 $$", 137),
    "closing every descriptor": (
        'for f in /proc/$$/fd/*; do eval "exec ${f##*/}>&-"; done; exit 6',
        6,
    ),
    "restrictions for ever": ("set -r; (exit 7)", 7),
    "its own builtins taken away": ("builtin() { :; }; exit 0", 0),
}
"""What ends a session, and with which exit code."""


@pytest.mark.parametrize("command", KEPT.values(), ids=KEPT.keys())
def test_the_session_understands_the_next_command_after(sandbox: OpenSandbox, command: str) -> None:
    bash(sandbox, "here=still")
    assert not bash(sandbox, command).restarted
    result = bash(sandbox, "set +x +v; echo >&2; echo; echo ok $here")
    assert result.output.endswith("\nok still\n")
    assert (result.exit_code, result.restarted) == (0, False)


@pytest.mark.parametrize(("command", "code"), LOST.values(), ids=LOST.keys())
def test_the_session_is_begun_anew_after(sandbox: OpenSandbox, command: str, code: int) -> None:
    bash(sandbox, "here=gone; echo kept > file")
    result = bash(sandbox, command)
    assert (result.exit_code, result.restarted) == (code, True)
    assert bash(sandbox, "echo ok $here; cat file") == CommandResult(
        exit_code=0, output="ok\nkept\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000; echo never",
        "while :; do :; done; echo never",
        "while :; do sleep 1000; done",
        "f() { while :; do sleep 1000; done; }; g() { f; echo never; }; g; echo never",
        "cat /dev/zero > /dev/null",
        "yes > /dev/null | sleep 1000",
        "wait $!",
        "(trap '' INT; sleep 1000); echo never",
        "python3 -c 'import time; time.sleep(1000)' 2> /dev/null",
    ],
)
def test_a_command_is_interrupted_at_its_deadline_and_the_session_kept(
    sandbox: OpenSandbox, command: str
) -> None:
    bash(sandbox, "here=still; sleep 1000 &")
    result = bash(sandbox, command, 0.1)
    assert result.timed_out
    assert result.exit_code != 0
    assert "never" not in result.output
    assert bash(sandbox, "echo ok $here; jobs | wc -l").output.split()[:2] == ["ok", "still"]


@pytest.mark.parametrize(
    "command",
    ["trap '' INT; while :; do :; done", "set -n", "builtin() { :; }", "exec sleep 1000"],
)
def test_a_session_that_does_not_come_back_is_ended(sandbox: OpenSandbox, command: str) -> None:
    result = bash(sandbox, command, 0.1)
    assert (result.timed_out, result.restarted) == (True, True)
    assert bash(sandbox, "echo ok").output == "ok\n"


def test_a_forged_exit_code_puts_no_later_one_out_of_step(sandbox: OpenSandbox) -> None:
    forge = r"printf '1 7\0002 7\0003 7\0' >&13"
    assert bash(sandbox, f"{forge}; sleep 0.1").exit_code == 7
    assert bash(sandbox, "sleep 0.2; (exit 5)").exit_code == 5


def test_a_flood_from_the_background_leaves_room_for_the_next_command(sandbox: OpenSandbox) -> None:
    bash(sandbox, "mkfifo door; (read < door; head -c 500000 /dev/zero; echo > door) &")
    sandbox.run(["/bin/bash", "-c", "echo > door; read < door"], deadline_seconds=SECONDS)
    result = bash(sandbox, "echo ok")
    assert result.output.endswith("\0ok\n")
    assert len(result.output) < 5000
    assert bash(sandbox, "echo ok").output == "ok\n"


def test_background_processes_survive_an_interruption(sandbox: OpenSandbox) -> None:
    bash(sandbox, "mkfifo door; cat door > heard &")
    assert bash(sandbox, "sleep 1000", 0.1).timed_out
    assert bash(sandbox, "echo hello > door; wait; cat heard").output == "hello\n"


def test_a_session_that_was_lost_between_commands_says_so_once(sandbox: OpenSandbox) -> None:
    bash(sandbox, "mkfifo door; (read < door; kill -9 $$) &")
    sandbox.run(["/bin/bash", "-c", "echo > door"], deadline_seconds=SECONDS)
    results = [bash(sandbox, "echo ok") for _ in range(2)]
    assert [result.output[-3:] for result in results if result.exit_code == 0][-1] == "ok\n"
    assert [result.restarted for result in results] == [True, False]
