"""What a sandbox must hold back, tried from inside, and what it must give."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.command import SandboxLimits, confined
from agent_server.sandbox.held_sandbox import HeldSandbox
from agent_server.sandbox.protocol import CommandResult, SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.settings import SandboxSettings
from tests.llm_fixtures import ROOT
from tests.waiting import until


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[HeldSandbox]:
    opened = sandboxes.open(SandboxNeeds())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def tight() -> Iterator[HeldSandbox]:
    """A sandbox with limits that are quick to reach."""
    limits = SandboxLimits(
        processes=16,
        memory_bytes=128 << 20,
        cpu_seconds=1,
        file_bytes=1 << 20,
        tmp_bytes=1 << 20,
        output_bytes=10_000,
    )
    maker = Bubblewrap(SandboxSettings(limits=limits))
    opened = maker.open(SandboxNeeds())
    yield opened
    opened.close()
    maker.close()


def sh(sandbox: HeldSandbox, script: str, *, deadline_seconds: float = 10) -> CommandResult:
    return sandbox.run(["/bin/bash", "-c", script], deadline_seconds=deadline_seconds)


def processes_named(marker: str) -> list[psutil.Process]:
    """Processes of this machine whose command line has `marker`; it must be unique."""
    return [
        each for each in psutil.process_iter(["cmdline"]) if marker in (each.info["cmdline"] or [])
    ]


def test_a_command_gives_its_output_and_exit_code(sandbox: HeldSandbox) -> None:
    result = sh(sandbox, "echo out; echo err >&2; exit 7")
    assert result == CommandResult(exit_code=7, output="out\nerr\n")


def test_a_command_reads_its_input(sandbox: HeldSandbox) -> None:
    text = "x" * 300_000  # more than a pipe holds
    result = sandbox.run(["/usr/bin/wc", "-c"], stdin=text, deadline_seconds=10)
    assert result.output.strip() == "300000"


def test_a_command_that_does_not_read_its_input_still_ends(sandbox: HeldSandbox) -> None:
    result = sandbox.run(["/bin/true"], stdin="x" * 300_000, deadline_seconds=10)
    assert result.exit_code == 0


def test_a_command_that_does_not_exist_fails_as_in_a_shell(sandbox: HeldSandbox) -> None:
    assert sandbox.run(["/no/such/thing"], deadline_seconds=10).exit_code in (126, 127)


def test_files_last_from_one_command_to_the_next(sandbox: HeldSandbox) -> None:
    sh(sandbox, "echo kept > note")
    assert sh(sandbox, "cat note").output == "kept\n"


def test_another_sandbox_sees_none_of_them(sandboxes: Bubblewrap, sandbox: HeldSandbox) -> None:
    sh(sandbox, "echo secret > note")
    other = sandboxes.open(SandboxNeeds())
    try:
        assert sh(other, "ls -A").output == ""
    finally:
        other.close()


def test_the_network_cannot_be_reached(sandbox: HeldSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = sh(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected")
    assert "connected" not in result.output
    assert result.exit_code != 0


def test_there_is_only_the_loopback_interface(sandbox: HeldSandbox) -> None:
    lines = sh(sandbox, "cat /proc/net/dev").output.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]


@pytest.mark.parametrize("path", ["/root", "/home", "/etc/passwd", "/var", "/run", "/sys"])
def test_the_hosts_files_are_not_there(sandbox: HeldSandbox, path: str) -> None:
    assert sh(sandbox, f"test -e {path}").exit_code == 1


def test_the_project_is_not_there(sandbox: HeldSandbox) -> None:
    assert sh(sandbox, f"test -e {ROOT}").exit_code == 1


def test_other_workspaces_cannot_be_reached_through_the_hosts_tmp(
    sandbox: HeldSandbox,
) -> None:
    assert sh(sandbox, "ls -A /tmp").output == ""


def test_only_its_own_processes_are_visible(sandbox: HeldSandbox) -> None:
    assert sh(sandbox, "cat /proc/1/comm").output == "bash\n"
    assert len(sh(sandbox, "echo /proc/[0-9]*").output.split()) <= 4


def test_the_environment_is_empty_but_for_a_path(
    sandbox: HeldSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    names = {line.split("=")[0] for line in sh(sandbox, "/usr/bin/env").output.splitlines()}
    assert names == {"PATH", "HOME", "LANG", "PWD", "SHLVL", "_"}


def test_bubblewrap_itself_is_told_to_clear_the_environment() -> None:
    command = confined(["/bin/true"], SandboxLimits())
    assert "--clearenv" in command[: command.index("--")]
    assert command[-1] == "/bin/true"


def test_there_are_no_capabilities_and_no_way_to_get_any(sandbox: HeldSandbox) -> None:
    status = dict(
        line.split(":\t", 1) for line in sh(sandbox, "cat /proc/self/status").output.splitlines()
    )
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert set(status["Uid"].split()) == {"65534"}


def test_bubblewrap_itself_is_told_to_drop_every_capability() -> None:
    command = confined(["true"], SandboxLimits())
    assert command[command.index("--cap-drop") + 1] == "ALL"


def test_a_command_does_not_share_our_session(sandbox: HeldSandbox) -> None:
    _, _, after_name = sh(sandbox, "cat /proc/self/stat").output.rpartition(") ")
    session = int(after_name.split()[3])
    assert session != 0, "the leader of its session is outside"


def test_the_directory_of_the_workspaces_cannot_be_listed_by_others(sandboxes: Bubblewrap) -> None:
    assert sandboxes.ledger.home.stat().st_mode & 0o777 == 0o711


def test_a_new_user_namespace_is_refused(sandbox: HeldSandbox) -> None:
    assert sh(sandbox, "unshare -Ur true").exit_code != 0


@pytest.mark.parametrize("path", ["/new", "/usr/new", "/etc/new", "/dev/new", "/bin/new"])
def test_nothing_can_be_written_outside_the_workspace(sandbox: HeldSandbox, path: str) -> None:
    assert sh(sandbox, f"echo x > {path}").exit_code != 0


def test_a_link_out_of_the_workspace_leads_nowhere(sandbox: HeldSandbox) -> None:
    sh(sandbox, "ln -s /etc/passwd stolen")
    assert sh(sandbox, "cat stolen").exit_code != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="about what root must give up")
def test_root_does_not_run_the_command_as_itself(sandbox: HeldSandbox) -> None:
    marker = "31.4159"
    thread = threading.Thread(target=sh, args=(sandbox, f"exec sleep {marker}"))
    thread.start()
    try:
        sleeping = _await_process(marker)
        assert set(sleeping.uids()) == {65534}
    finally:
        sandbox.close()
        thread.join(10)


def test_a_fork_bomb_is_contained(tight: HeldSandbox) -> None:
    result = sh(tight, "bomb() { bomb | bomb & }; bomb; wait", deadline_seconds=1)
    assert "Resource temporarily unavailable" in result.output or result.exit_code != 0
    assert sh(tight, "echo fine").output == "fine\n"


def test_memory_is_limited(tight: HeldSandbox) -> None:
    result = sh(tight, "head -c 500M /dev/zero | tail")
    assert result.exit_code != 0
    assert "memory" in result.output


def test_the_out_of_memory_killer_would_take_it_first(sandbox: HeldSandbox) -> None:
    assert sh(sandbox, "cat /proc/self/oom_score_adj").output == "1000\n"


def test_cpu_time_is_limited(tight: HeldSandbox) -> None:
    began = time.monotonic()
    result = sh(tight, "while :; do :; done", deadline_seconds=20)
    assert result.exit_code == 137
    assert not result.timed_out
    assert time.monotonic() - began < 15


def test_files_are_limited(tight: HeldSandbox) -> None:
    assert sh(tight, "head -c 3M /dev/zero > big").exit_code != 0
    assert (
        sh(tight, "for i in 1 2 3; do head -c 900K /dev/zero > /tmp/$i || exit 9; done").exit_code
        == 9
    )


def test_long_output_is_cut_off_and_says_so(tight: HeldSandbox) -> None:
    result = sh(tight, "head -c 2000000 /dev/zero | tr '\\0' x; echo end; exit 3")
    assert result.truncated
    assert result.output.startswith("x" * 10_000)
    assert result.output.endswith("[output truncated]")
    assert len(result.output) < 10_100
    assert result.exit_code == 3


def test_a_command_is_killed_at_its_deadline(sandbox: HeldSandbox) -> None:
    began = time.monotonic()
    result = sh(sandbox, "echo begun; trap '' TERM INT HUP; sleep 27.1828", deadline_seconds=0.3)
    assert result.timed_out
    assert result.output == "begun\n"
    assert time.monotonic() - began < 3
    assert processes_named("27.1828") == []


def test_a_daemon_dies_with_its_command(sandbox: HeldSandbox) -> None:
    marker = "16.1803"
    for _ in range(10):
        daemon = f"(setsid setsid sleep {marker} </dev/null >/dev/null 2>&1 &); echo left"
        assert sh(sandbox, daemon).output == "left\n"
        assert processes_named(marker) == []


def test_a_command_inherits_no_open_file(sandbox: HeldSandbox) -> None:
    assert sh(sandbox, "echo /proc/self/fd/*").output.split() == [
        f"/proc/self/fd/{number}" for number in (0, 1, 2, 3)
    ], "the fourth is the listing itself"


def test_close_ends_a_running_command(sandbox: HeldSandbox) -> None:
    marker = "14.1421"
    results: list[CommandResult] = []
    thread = threading.Thread(target=lambda: results.append(sh(sandbox, f"exec sleep {marker}")))
    thread.start()
    _await_process(marker)
    sandbox.close()
    thread.join(10)
    assert results[0].exit_code == 137
    assert processes_named(marker) == []


def test_close_ends_a_command_that_has_only_just_been_started(sandboxes: Bubblewrap) -> None:
    """bwrap has a moment in which its own death would not yet end its child."""
    marker = "22.3606"
    for step in range(30):
        sandbox = sandboxes.open(SandboxNeeds())
        ended = threading.Event()

        def run(opened: HeldSandbox = sandbox, done: threading.Event = ended) -> None:
            with contextlib.suppress(SandboxUnavailable):
                sh(opened, f"exec sleep {marker}")
            done.set()

        threading.Thread(target=run).start()
        ended.wait(0.0005 * step)
        sandbox.close()
        assert ended.wait(5), "the command outlived its sandbox"
    assert processes_named(marker) == []


def test_a_closed_sandbox_runs_nothing_and_leaves_nothing(sandboxes: Bubblewrap) -> None:
    sandbox = sandboxes.open(SandboxNeeds())
    sh(sandbox, "mkdir -p deep/er; echo x > deep/er/file; chmod 000 deep/er")
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxUnavailable):
        sh(sandbox, "true")


def test_a_sandbox_with_thousands_of_nested_directories_is_closed_and_removed(
    own_tmp: Path,
) -> None:
    maker = Bubblewrap(SandboxSettings())
    sandbox = maker.open(SandboxNeeds())
    nest = 'path=$(printf "d/%.0s" {1..1500}); mkdir -p $path && cd $path && mkdir -p $path'
    assert sh(sandbox, nest, deadline_seconds=60).exit_code == 0
    sandbox.close()
    until("it is removed", lambda: not list(maker.ledger.home.glob("sandbox-*")))
    assert maker.ledger.left == 0
    maker.close()
    assert list(own_tmp.iterdir()) == []


@pytest.mark.parametrize(
    "argument", ["x" * 140_000, "a\0b", "\ud800"], ids=["too long", "NUL", "surrogate"]
)
def test_an_argument_that_no_kernel_takes_fails_the_command_and_not_the_sandbox(
    sandbox: HeldSandbox, argument: str
) -> None:
    result = sandbox.run(["/bin/echo", argument], deadline_seconds=10)
    assert result.exit_code == 126
    assert result.output.startswith("cannot execute: ")
    assert sh(sandbox, "echo fine").output == "fine\n"


def test_input_that_is_not_unicode_reaches_the_command(sandbox: HeldSandbox) -> None:
    result = sandbox.run(["/usr/bin/wc", "-c"], stdin="\ud800\0\udcff", deadline_seconds=10)
    assert result.output.strip() == "7"


def test_nothing_of_a_maker_is_left_on_the_disk(own_tmp: Path) -> None:
    maker = Bubblewrap(SandboxSettings())
    sandbox = maker.open(SandboxNeeds())
    assert sh(sandbox, "echo x > file").exit_code == 0
    sandbox.close()
    maker.close()
    assert list(own_tmp.iterdir()) == []


def test_a_machine_that_cannot_is_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agent_server.sandbox.bubblewrap.confined",
        lambda *_, **__: ["--no-such-option"],
    )
    with pytest.raises(SandboxUnavailable, match=r"cannot make a sandbox here: .*no-such-option"):
        Bubblewrap(SandboxSettings())


def test_sandboxes_run_side_by_side(sandboxes: Bubblewrap) -> None:
    opened = [sandboxes.open(SandboxNeeds()) for _ in range(8)]
    outputs: dict[int, str] = {}

    def work(number: int) -> None:
        outputs[number] = sh(opened[number], f"echo {number} > n; sleep 0.05; cat n").output

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for sandbox in opened:
        sandbox.close()
    assert outputs == {number: f"{number}\n" for number in range(8)}


def _await_process(marker: str) -> psutil.Process:
    until(f"a process {marker} is started", lambda: processes_named(marker))
    return processes_named(marker)[0]
