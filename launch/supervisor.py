"""The supervisor of a deployment on one machine: it starts again what dies.

- It takes over processes that are ready. When one starts again is decided in `launch.restarts`.
- A part comes back where it was: same port, same level, same log, and the same command unless it
  was planned again. What its last life
  left of its process group is killed before.
- A part that is not ready in its time is killed, which counts as a death.
- What happens is told, one sentence at a time, and kept in the file of `launch.parts`. Where that
  cannot be written, as on a full disk, it is written later: the parts go on.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from launch.local import LOGS, RunningPart, is_ready, log_of
from launch.parts import PartStatus, write_parts
from launch.process_spec import ProcessSpec
from launch.processes import Processes, Started, how_it_ended
from launch.readiness import PROBE_SECONDS
from launch.restarts import Part, PartState, RestartPolicy, due, fatal, next_start
from rollyard.errors import LaunchError

QUIET_SECONDS = 60.0
"""Time to sleep while nothing is to be done."""
ROOM_SECONDS = 1.0
"""Time to sleep while there is no room on the disk."""


USUAL = RestartPolicy()


class Supervised(msgspec.Struct):
    """One part of the plan, as it is now."""

    spec: ProcessSpec
    part: Part
    running: Started | None


class Supervisor:
    """Owns the restarts of the `parts` of a deployment in `directory`, which are children of
    `processes`. Call from the main thread."""

    def __init__(
        self,
        parts: Sequence[RunningPart],
        processes: Processes,
        directory: Path,
        tell: Callable[[str], None],
        policy: RestartPolicy = USUAL,
        plan_again: Callable[[ProcessSpec], ProcessSpec] = lambda spec: spec,
    ) -> None:
        """`plan_again` gives the present plan of a part that starts again."""
        now = time.monotonic()
        self._parts = {
            spec.name: Supervised(
                spec, Part(name=spec.name, kind=spec.kind, after=spec.after, since=now), running
            )
            for spec, running in parts
        }
        self._processes = processes
        self._directory = directory
        self._tell = tell
        self._policy = policy
        self._plan_again = plan_again
        self._unwritten = False
        self._write()

    def keep(self, until: Started | None = None) -> None:
        """Keep everything running. Returns when the process `until` has ended. Raises `LaunchError`
        when nothing works any more, because a part without which nothing does is given up."""
        while True:
            ended = self._processes.wait_for_exits(self._seconds_to_sleep())
            if until in ended:
                return
            if self._unwritten:
                self._write()
            for each in self._parts.values():
                if each.running in ended:
                    self._bury(each)
                elif each.part.state is PartState.STARTING:
                    self._look(each)
            for part in due(self._all(), time.monotonic()):
                self._start(self._parts[part.name])

    def _all(self) -> list[Part]:
        return [each.part for each in self._parts.values()]

    def _seconds_to_sleep(self) -> float:
        parts = self._all()
        if any(part.state is PartState.STARTING for part in parts):
            return PROBE_SECONDS  # it cannot notify us
        start, quiet = next_start(parts), ROOM_SECONDS if self._unwritten else QUIET_SECONDS
        return quiet if start is None else min(quiet, max(0.0, start - time.monotonic()))

    def _bury(self, each: Supervised) -> None:
        assert each.running is not None
        reason = how_it_ended(each.running)
        self._processes.forget(each.running)
        each.running = None
        self._note_death(each, reason)

    def _look(self, each: Supervised) -> None:
        assert each.running is not None
        waited = time.monotonic() - each.part.since
        if is_ready(each.spec):
            each.part = each.part.became_ready(time.monotonic())
            self._write()
            self._tell(f"{each.spec.name} is ready again, {waited:.0f} s after its start")
        elif waited > each.spec.ready_seconds:
            said = each.running.last_log_line
            self._processes.forget(each.running)
            each.running = None
            last = f" and last said: {said}" if said else ""
            self._note_death(each, f"was not ready after {each.spec.ready_seconds:g} s{last}")

    def _start(self, each: Supervised) -> None:
        each.spec = self._plan_again(each.spec)
        spec, log = each.spec, self._log(each)
        try:
            running = self._processes.start_again(spec.name, spec.command, log, level=spec.level)
        except LaunchError as error:
            return self._note_death(each, error.message)
        each.running = running
        each.part = each.part.started(time.monotonic())
        self._write()
        return None

    def _note_death(self, each: Supervised, reason: str) -> None:
        """Note how it ended, and tell what follows from it. Raises `LaunchError` if that is the end
        of everything."""
        now = time.monotonic()
        each.part = each.part.died(reason, now, self._policy)
        self._write()
        ended = f"{each.spec.name} {reason}; its log is {self._log(each)}"
        if each.part.state is PartState.WAITING:
            seconds, deaths = each.part.starts_at - now, each.part.deaths
            again = f"it starts again in {seconds:g} s (death {deaths} in a row)"
            return self._tell(f"{ended}; {again}")
        given_up = f"it is given up after {each.part.deaths} deaths in a row"
        if fatal(self._all()) is not None:
            raise LaunchError(f"{ended}; {given_up}, and without {each.part.kind} nothing works")
        return self._tell(f"{ended}; {given_up}, and everything else goes on")

    def _log(self, each: Supervised) -> Path:
        return log_of(each.spec.name, self._directory / LOGS)

    def _write(self) -> None:
        since_epoch = time.time() - time.monotonic()
        parts = [
            PartStatus(
                name=each.part.name,
                state=each.part.state,
                pid=each.running.process.pid if each.running else 0,
                restarts=each.part.restarts,
                reason=each.part.reason,
                died_at=each.part.died_at + since_epoch if each.part.reason else 0.0,
                log=str(self._log(each)),
            )
            for each in self._parts.values()
        ]
        try:
            write_parts(self._directory, parts)
        except OSError as error:
            if not self._unwritten:
                why = f"cannot write to {self._directory}: {error.strerror}"
                self._tell(f"{why}; what `rollyard status` says of parts is old until it can")
            self._unwritten = True
            return
        if self._unwritten:
            self._unwritten = False
            self._tell(f"{self._directory} can be written again")
