"""What dies is started again, or given up with its reason; the processes here are real ones."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from launch.free_ports import free_port
from launch.local import start
from launch.parts import PARTS, PartStatus, read_parts
from launch.process_spec import ProcessSpec
from launch.processes import Processes
from launch.readiness import accepts
from launch.restarts import PartState, RestartPolicy
from launch.supervisor import Supervisor
from rollyard.errors import LaunchError
from tests.processes import lives

QUICK = RestartPolicy(first_seconds=0.01, max_seconds=0.02, max_deaths=3)
FOREVER = "import signal; signal.pause()"
LISTENS = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
IN_ITS_FIRST_LIFE = """
import pathlib, sys
seen = pathlib.Path(sys.argv[2])
if seen.exists():
    print('the disk is full', flush=True)
    {later}
seen.touch()
"""
FAILS_LATER = IN_ITS_FIRST_LIFE.format(later="sys.exit(7)")
SILENT_LATER = IN_ITS_FIRST_LIFE.format(later=FOREVER)


class Enough(Exception):
    pass


class Yard:
    """Small parts under a supervisor; `said` is what it told."""

    def __init__(self, directory: Path, processes: Processes) -> None:
        self.directory = directory
        self.processes = processes
        self.said: list[str] = []
        self.reactions: dict[str, Callable[[], None]] = {}

    def spec(self, name: str, *, kind: str = "parts", first: str = "") -> ProcessSpec:
        """A part that listens for ever, unless what it does `first` prevents that."""
        port, seen = free_port(), self.directory / f"{name}.seen"
        return ProcessSpec(
            name=name,
            kind=kind,
            command=(sys.executable, "-c", first + LISTENS + FOREVER, str(port), str(seen)),
            port=port,
            ready_path="",
            ready_seconds=60.0,
        )

    def keep(
        self,
        *specs: ProcessSpec,
        kill: str = "",
        again_in: float = 60.0,
        plan_again: Callable[[ProcessSpec], ProcessSpec] = lambda spec: spec,
    ) -> None:
        """Kill one part as soon as all are ready, and supervise them; those that start again have
        so many seconds."""
        parts = start(specs, self.directory / "logs", self.processes)
        parts = [
            (msgspec.structs.replace(spec, ready_seconds=again_in), started)
            for spec, started in parts
        ]
        supervisor = Supervisor(parts, self.processes, self.directory, self.tell, QUICK, plan_again)
        for spec, started in parts:
            if spec.name == kill:
                started.process.kill()
        supervisor.keep()

    def tell(self, sentence: str) -> None:
        self.said.append(sentence)
        for words, react in self.reactions.items():
            if words in sentence:
                react()

    def stop_at(self, words: str) -> None:
        """Leave `keep` by `Enough` once a sentence has these words."""

        def leave() -> None:
            raise Enough

        self.reactions[words] = leave

    def part(self, name: str) -> PartStatus:
        (found,) = [each for each in read_parts(self.directory) if each.name == name]
        return found


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Processes() as processes:
        yield Yard(tmp_path, processes)


def test_a_part_that_is_killed_comes_back_where_it_was(yard: Yard) -> None:
    yard.stop_at("is ready again")
    with pytest.raises(Enough):
        yard.keep(yard.spec("part"), kill="part")
    died, ready = yard.said
    log = yard.directory / "logs" / "part.log"
    again = "it starts again in 0.01 s (death 1 in a row)"
    assert died == f"part was killed by SIGKILL; its log is {log}; {again}"
    assert ready.startswith("part is ready again, ")
    part = yard.part("part")
    assert (part.state, part.restarts, part.reason) == ("ready", 1, "was killed by SIGKILL")
    assert part.died_at > 1.6e9


def test_a_part_that_starts_again_begins_as_it_is_planned_by_then(yard: Yard) -> None:
    before, after = yard.spec("part"), yard.spec("part")
    yard.stop_at("is ready again")
    with pytest.raises(Enough):
        yard.keep(before, kill="part", plan_again=lambda spec: after)
    assert accepts(after.port)
    assert not accepts(before.port)


def test_a_part_that_fails_again_and_again_is_given_up_alone(yard: Yard) -> None:
    yard.stop_at("everything else goes on")
    failing = yard.spec("failing", first=FAILS_LATER)
    with pytest.raises(Enough):
        yard.keep(failing, yard.spec("other"), kill="failing")
    assert len(yard.said) == 4
    assert "failing ended with code 7 (the disk is full); its log is " in yard.said[-1]
    assert "given up after 4 deaths in a row, and everything else goes on" in yard.said[-1]
    part = yard.part("failing")
    assert (part.state, part.restarts) == (PartState.GIVEN_UP, 3)
    assert part.reason == "ended with code 7 (the disk is full)"
    assert yard.part("other").state is PartState.READY


def test_without_any_part_of_a_kind_all_ends_with_the_reason(yard: Yard) -> None:
    failing = yard.spec("queue", kind="Redis", first=FAILS_LATER)
    with pytest.raises(LaunchError, match=r"queue ended with code 7 \(the disk is full\)") as ended:
        yard.keep(failing, yard.spec("other"), kill="queue")
    assert "4 deaths in a row, and without Redis nothing works" in str(ended.value)
    assert yard.part("other").state is PartState.READY


def test_a_part_that_does_not_get_ready_again_in_time_has_died(yard: Yard) -> None:
    yard.stop_at("was not ready after 3 s and last said: the disk is full")
    with pytest.raises(Enough):
        yard.keep(yard.spec("part", first=SILENT_LATER), kill="part", again_in=3)


def test_it_returns_when_the_process_that_it_keeps_all_for_ends(yard: Yard) -> None:
    processes = yard.processes
    parts = start([yard.spec("part")], yard.directory / "logs", processes)
    trainer = processes.start("trainer", [sys.executable, "-c", "raise SystemExit(3)"])
    Supervisor(parts, processes, yard.directory, yard.tell, QUICK).keep(trainer)
    assert trainer.process.returncode == 3


def test_what_a_dead_part_left_of_its_group_is_killed_before_it_starts_again(yard: Yard) -> None:
    """A child that holds the port: nothing else could listen there."""
    port, log = free_port(), yard.directory / "child"
    forks = (
        "import os, pathlib, signal; s.set_inheritable(True); "
        "os.fork() or pathlib.Path(sys.argv[2]).write_text(str(os.getpid())); signal.pause()"
    )
    spec = ProcessSpec(
        name="part",
        kind="parts",
        command=(sys.executable, "-c", LISTENS + forks, str(port), str(log)),
        port=port,
        ready_path="",
        ready_seconds=60.0,
    )
    children: list[psutil.Process] = []
    yard.reactions["starts again"] = lambda: children.append(psutil.Process(int(log.read_text())))
    yard.stop_at("is ready again")
    with pytest.raises((Enough, psutil.NoSuchProcess)):  # it is gone when that is told
        yard.keep(spec, kill="part")
    assert not any(map(lives, children))


def test_parts_start_again_on_a_full_disk_and_their_state_is_written_once_there_is_room(
    yard: Yard,
) -> None:
    full = yard.directory / f"{PARTS}.new"
    full.symlink_to("/dev/full")
    yard.reactions["is ready again"] = full.unlink
    yard.stop_at("can be written again")
    with pytest.raises(Enough):
        yard.keep(yard.spec("part"), kill="part")
    assert yard.said[0] == (
        f"cannot write to {yard.directory}: No space left on device; what `rollyard status` says "
        "of parts is old until it can"
    )
    part = yard.part("part")
    assert (part.state, part.restarts) == (PartState.READY, 1)


def test_a_part_whose_log_cannot_be_written_is_given_up_with_that_reason(yard: Yard) -> None:
    log = yard.directory / "logs" / "part.log"

    def take_away() -> None:
        log.unlink()
        log.mkdir()

    yard.reactions["death 1 in a row"] = take_away
    with pytest.raises(LaunchError, match=f"cannot write to {log}: Is a directory"):
        yard.keep(yard.spec("part"), kill="part")
