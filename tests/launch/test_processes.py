"""No process of ours outlives us or dies unnoticed; the processes here are real ones."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launch.processes import Processes, Started, describe_exit, start_process
from rollyard.errors import LaunchError
from tests.processes import lives
from tests.waiting import until

FOREVER = "import signal; signal.pause()"


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_death_wakes_the_waiter_at_once(processes: Processes) -> None:
    victim = processes.start("victim", python(FOREVER))
    threading.Timer(0.2, victim.process.kill).start()
    started = time.monotonic()
    assert processes.wait_for_first_exit() is victim
    assert time.monotonic() - started < 10


def test_the_sentence_on_an_exit_names_the_signal_and_the_log(
    processes: Processes, tmp_path: Path
) -> None:
    log = tmp_path / "victim.log"
    code = "import os; print('all is well', flush=True); os.kill(os.getpid(), 9)"
    victim = processes.start("victim", python(code), log)
    processes.wait_for_first_exit()
    assert describe_exit(victim) == f"victim was killed by SIGKILL; its log is {log}"


def test_the_sentence_on_an_exit_names_the_code_and_the_last_log_line(
    processes: Processes, tmp_path: Path
) -> None:
    log = tmp_path / "victim.log"
    victim = processes.start("victim", python("raise SystemExit('the disk is full')"), log)
    processes.wait_for_first_exit()
    assert describe_exit(victim) == f"victim ended with code 1 (the disk is full); its log is {log}"


def test_a_dead_process_fails_the_check(processes: Processes) -> None:
    processes.start("victim", python("raise SystemExit(3)"))
    processes.wait_for_first_exit()
    with pytest.raises(LaunchError, match="victim ended with code 3"):
        processes.check()


def test_a_command_that_does_not_exist_is_named(processes: Processes) -> None:
    with pytest.raises(LaunchError, match=r"cannot start ghost: /no/such/command"):
        processes.start("ghost", ["/no/such/command"])


def test_stopping_ends_children_grandchildren_and_orphans(tmp_path: Path) -> None:
    processes = Processes()
    log = tmp_path / "log"
    orphaner = f"""
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        {FOREVER.split(";")[1].strip()}
    os._exit(0)
signal.pause()
"""
    processes.start("orphaner", python(orphaner), log)
    until("it has said so", lambda: log.read_text().strip())
    orphan = int(log.read_text())
    processes.stop_all()
    assert not psutil.pid_exists(orphan)


def test_a_process_stops_once_those_above_it_have_ended(tmp_path: Path) -> None:
    """The upper one takes its time, and says in the end whether the lower one was still there."""
    processes = Processes()
    lower = processes.start("lower", python(FOREVER), level=0).process.pid
    code = f"""
import os, signal, time
def end(*_):
    time.sleep(1)
    os.kill({lower}, 0)
    print('it was there', flush=True)
    raise SystemExit
signal.signal(signal.SIGTERM, end)
print('ready', flush=True)
signal.pause()
"""
    log = tmp_path / "upper.log"
    processes.start("upper", python(code), log, level=1)
    until("it has said so", lambda: log.read_text() == "ready\n")
    processes.stop_all()
    assert log.read_text() == "ready\nit was there\n"


def test_the_logs_of_the_last_starts_are_kept(processes: Processes, tmp_path: Path) -> None:
    for number in range(6):
        part = processes.start(f"part {number}", python(f"print({number})"), tmp_path / "part.log")
        part.process.wait(30)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "part.log": "5\n",
        "part.log.1": "4\n",
        "part.log.2": "3\n",
        "part.log.3": "2\n",
    }


def test_children_that_were_there_before_are_left_alone() -> None:
    other = subprocess.Popen(python(FOREVER))
    processes = Processes()
    mine = processes.start("mine", python(FOREVER))
    processes.stop_all()
    assert mine.process.returncode is not None
    assert other.poll() is None
    other.kill()
    other.wait(10)


def start_deaf(processes: Processes, log: Path) -> int:
    """The number of a process that already ignores SIGTERM."""
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); " + FOREVER
    started = processes.start("deaf", python(code), log)
    until("it has said so", log.read_text)
    return started.process.pid


def test_a_process_deaf_to_sigterm_is_killed(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("launch.processes.STOP_SECONDS", 0.5)
    deaf = start_deaf(processes, tmp_path / "log")
    processes.stop_all()
    assert not psutil.pid_exists(deaf)


def test_a_second_ctrl_c_does_not_cut_the_stop_short(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr("launch.processes.STOP_SECONDS", 1.0)
    deaf = start_deaf(processes, tmp_path / "log")
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        processes.stop_all()
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.signal(signal.SIGINT, before)
    assert not psutil.pid_exists(deaf)


def with_a_deaf_child(log: Path) -> tuple[Started, psutil.Process]:
    """A process, and one of its group that ignores SIGTERM."""
    deaf = f"import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); {FOREVER}"
    parent = f"import subprocess; subprocess.run({python(deaf)})"
    started = start_process("parent", python(parent), log)
    until("the child is deaf", log.read_text)
    _, child = started.family()
    return started, child


def test_a_process_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    started, child = with_a_deaf_child(tmp_path / "log")
    started.kill()
    assert started.process.returncode == -signal.SIGKILL
    until("the child is gone", lambda: not lives(child))


def test_what_a_stopped_process_leaves_of_its_group_is_killed(tmp_path: Path) -> None:
    started, child = with_a_deaf_child(tmp_path / "log")
    started.stop()
    assert started.process.returncode == -signal.SIGTERM
    until("the child is gone", lambda: not lives(child))
    started.kill()  # which is gone: nothing happens


def test_a_process_outlives_the_thread_that_started_it() -> None:
    started: list[Started] = []
    command = python("import time; time.sleep(1)")
    thread = threading.Thread(target=lambda: started.append(start_process("part", command)))
    thread.start()
    thread.join(10)
    assert started[0].process.wait(20) == 0


def test_a_process_that_starts_again_adds_to_its_log(tmp_path: Path) -> None:
    for life in ("first", "second"):
        start_process("part", python(f"print({life!r})"), tmp_path / "log").process.wait(20)
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_children_end_when_their_launcher_is_killed(tmp_path: Path) -> None:
    code = f"""
from launch.processes import Processes
import signal
started = Processes().start("child", [{sys.executable!r}, "-c", {FOREVER!r}])
print(started.process.pid, flush=True)
signal.pause()
"""
    launcher = subprocess.Popen(python(code), stdout=subprocess.PIPE)
    assert launcher.stdout is not None
    child = psutil.Process(int(launcher.stdout.readline()))
    launcher.kill()
    launcher.wait(10)
    until("the child ends", lambda: not lives(child), 10)
