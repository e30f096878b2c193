"""The job runner: INIT (environment, sandbox) > RUN (turns) > EVAL (reward).

- Every accepted Lease yields exactly one Result, whatever happens on the way.
- A parked attempt keeps its Slot, its sandbox and its thread, and its clock stands still.
- An attempt has one thread from its Lease to its Result, and each of its stages has a deadline. One
  more thread keeps the deadlines of all attempts.
- An environment that ignores its deadline is killed. A stage that does not return even then is
  reported as failed all the same; its Slot is lost, and reported as lost, until its thread returns.
- A reward is given for what the policy did. Everything else is `infra_failed`, with the reason and
  who is to blame: the row, with its environment's code, or this server.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from agent_server.control.deadline import Alarms, Deadline
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.jobs.attempt import Attempt, Stage, cancelled, completed, given_up, unfinished
from agent_server.jobs.rooms import Rooms
from agent_server.jobs.settings import RunnerSettings as RunnerSettings
from agent_server.jobs.stage_limits import EACH_STAGE, StageLimits
from agent_server.jobs.stages import Stages
from agent_server.metrics import Metrics
from agent_server.status import Status
from rollyard.errors import InvalidMessage, RollyardError, Unavailable
from rollyard.messages import Assignment, GivenBack, Lease, LostSlots, Refusal, Result, Taken
from serving.logs import of_lease

log = structlog.get_logger()

Work = Callable[[Attempt, StopSignal], None]


class JobRunner:
    """Owns the attempts of this server, from their Leases to their Results."""

    def __init__(
        self,
        settings: RunnerSettings,
        stages: Stages,
        metrics: Metrics,
        report: Callable[[Result], None],
        limits: StageLimits = EACH_STAGE,
        rooms: Rooms | None = None,
        failed: Callable[[Result, BaseException], None] = lambda result, error: None,
    ) -> None:
        """`failed` hears what ended an attempt before `report` has its Result."""
        self._settings = settings
        self._stages = stages
        self._metrics = metrics
        self._report = report
        self._failed = failed
        self._limits = limits
        self._changed = threading.Condition()
        self._attempts: dict[Lease, Attempt] = {}
        self._alarms = Alarms()
        rooms = self._rooms = rooms or settings.rooms()
        self._draining = False
        metrics.watch("rollyard_agent_slots", "Slots", lambda: rooms.slots.size)
        metrics.watch("rollyard_agent_slots_busy", "Slots in use", lambda: rooms.slots.busy)
        metrics.watch("rollyard_agent_jobs_parked", "Jobs that stand still", self._parked)
        metrics.watch(
            "rollyard_agent_slots_lost",
            "Slots held by attempts that ignore their end",
            lambda: self.lost().count,
        )

    def accept(self, assignment: Assignment) -> None:
        """Take a Lease and start its attempt; taking the same one again changes nothing."""
        source = assignment.job.prompt.data_source
        kind = self._stages.environments.get(source)
        if kind is None:
            raise InvalidMessage(
                f"unknown environment {source!r}",
                fix=f"data_source must be one of: {', '.join(sorted(self._stages.environments))}",
            )
        attempt = Attempt(assignment, kind.make)
        with self._changed:
            if self._draining:
                raise Unavailable("this agent server is shutting down")
            if attempt.lease in self._attempts:
                return
            self._rooms.slots.enter(attempt.lease)
            self._attempts[attempt.lease] = attempt
        try:
            threading.Thread(
                target=self._live, args=(attempt,), name=attempt.name, daemon=True
            ).start()
        except RuntimeError as error:  # no thread is to be had, and the Lease must end all the same
            self._leave(attempt, unfinished(attempt, error))

    def accept_next(self, assignment: Assignment) -> None:
        """Take the Lease that came with a Result's receipt; one that cannot be taken is handed back
        with a Result of its own."""
        try:
            self.accept(assignment)
        except Exception as error:  # whatever it is, the Lease must end
            log.warning("job_not_taken", **of_lease(assignment.lease), reason=str(error))
            self._report(cancelled(assignment.lease, str(error)))

    def accept_all(self, load: Sequence[Assignment]) -> Taken:
        """Take each of these Leases, and return the reasons why some could not be taken."""
        refused = []
        for assignment in load:
            try:
                self.accept(assignment)
            except RollyardError as error:
                refused.append(
                    Refusal(lease=assignment.lease, code=error.code, message=error.message)
                )
        return Taken(refused=tuple(refused))

    def cancel(self, lease: Lease) -> None:
        """Stop the Lease's attempt in whatever stage it is; nothing happens if it does not run."""
        attempt = self._attempt(lease)
        if attempt is None or attempt.cancelled:
            return
        late = time.monotonic() + self._settings.grace_seconds
        self._alarms.at(late, f"cancelled {attempt.name}", partial(self._give_up, attempt))
        attempt.cancellation.stop(StopReason.CANCELLED)

    def recall(self, jobs: int) -> GivenBack:
        """Hand back so many of the Jobs that wait for a Slot, at the most, the last ones first.
        What is parked is to go on here."""
        recalled: list[Lease] = []
        for lease in reversed(self._rooms.slots.waiters()):
            attempt = self._attempt(lease)
            if len(recalled) == jobs or attempt is None:
                break
            if attempt.parking.order.reason is None and self._rooms.slots.withdraw(lease):
                recalled.append(lease)
                self.cancel(lease)
        return GivenBack(tuple(recalled))

    def park(self, lease: Lease, as_of: float | None = None) -> None:
        """Let the Lease's attempt stand still, within a response too; see `Parking`."""
        if attempt := self._attempt(lease):
            attempt.parking.park(as_of)

    def resume(self, lease: Lease, as_of: float | None = None) -> None:
        """Let the Lease's attempt go on if it is parked."""
        if attempt := self._attempt(lease):
            attempt.parking.resume(as_of)

    def leases(self) -> tuple[Lease, ...]:
        """The Leases that have no Result yet."""
        with self._changed:
            return tuple(each.lease for each in self._attempts.values() if not each.ended)

    def lost(self) -> LostSlots:
        """The Slots of attempts that were given up and whose threads have not returned."""
        with self._changed:
            names = [
                f"{attempt.name} in {attempt.stage}"
                for attempt in self._attempts.values()
                if attempt.ended
            ]
        if not names:
            return LostSlots()
        return LostSlots(
            count=len(names),
            reason=f"{len(names)} of {self._settings.slots} slots are held by attempts that ignore "
            f"their end ({', '.join(names[:3])}); start this agent server again to have them back",
        )

    def lent(self) -> int:
        """Slots that others of this server have now."""
        return self._settings.slots - self._rooms.slots.size

    def why_not_ready(self) -> str:
        """The reason why no Job can run; empty while there is a Slot that is not lost."""
        lost = self.lost()
        return lost.reason if lost.count >= self._settings.slots else ""

    def status(self, server_id: str) -> Status:
        with self._changed:
            attempts = tuple(self._attempts.values())
            draining, slots = self._draining, self._rooms.slots
        stages = dict.fromkeys(map(str, Stage), 0)
        for attempt in attempts:
            stages[attempt.stage] += 1
        return Status(
            server_id=server_id,
            slots=self._settings.slots,
            busy=slots.busy,
            ahead=slots.waiting,
            parked=self._parked(),
            lost=self.lost(),
            draining=draining,
            stages=stages,
            leases=tuple(attempt.lease for attempt in attempts),
        )

    def drain(self) -> None:
        """Take no more Leases."""
        with self._changed:
            self._draining = True

    def close(self, wait_seconds: float) -> None:
        """Stop every attempt, and wait at most `wait_seconds` for their threads."""
        self.drain()
        for lease in self.leases():
            self.cancel(lease)
        with self._changed:
            self._changed.wait_for(lambda: not self._attempts, wait_seconds)
            hung = tuple(self._attempts.values())
        for attempt in hung:
            self._clean_up(attempt)
        self._alarms.close()

    def _attempt(self, lease: Lease) -> Attempt | None:
        with self._changed:
            return self._attempts.get(lease)

    def _parked(self) -> int:
        with self._changed:
            return sum(attempt.parking.standing for attempt in self._attempts.values())

    def _live(self, attempt: Attempt) -> None:
        """Work on an attempt from its Lease to its Result: INIT > a Slot > RUN > EVAL."""
        settings, stages, rooms = self._settings, self._stages, self._rooms
        lease, stop = attempt.lease, attempt.cancellation
        # No attempt waits for a place for longer than it may run: the Job may start anew anywhere.
        seconds = attempt.job.limits.job_seconds
        try:
            with rooms.init.held(lease, stop, seconds):
                self._work(attempt, Stage.INIT, stages.init, settings.init_seconds)
            rooms.slots.wait(lease, stop, seconds)
            self._work(attempt, Stage.RUN, stages.run, seconds)
            room = rooms.graded_here if stages.is_graded_here(attempt) else rooms.eval
            with room.held(lease, stop, seconds):
                eval_seconds = stages.eval_seconds(attempt, settings.eval_seconds)
                self._work(attempt, Stage.EVAL, stages.eval, eval_seconds)
            result = completed(attempt)
        except BaseException as error:  # the boundary of a Job: whatever it is, it becomes a Result
            result = unfinished(attempt, error)
            self._failed(result, error)
        self._leave(attempt, result)

    def _work(self, attempt: Attempt, stage: Stage, work: Work, usual_seconds: float) -> None:
        """Do one stage of one attempt, and keep its deadline."""
        seconds = self._limits.seconds(attempt, stage, usual_seconds)
        began, grace = time.monotonic(), self._settings.grace_seconds
        with attempt.enter(stage) as stop:
            attempt.deadline = Deadline(
                self._alarms,
                f"{attempt.name} in {stage}",
                (seconds, partial(stop.stop, StopReason.OUT_OF_TIME)),
                (seconds + grace, attempt.episode.kill),
                (seconds + 2 * grace, partial(self._give_up, attempt)),
            )
            attempt.deadline.start()
            try:
                stop.check()
                work(attempt, stop)
            finally:
                attempt.deadline.stop()
                self._metrics.staged(stage, attempt.spent(stage, began))
        if attempt.ended:  # it was given up, and returned all the same
            raise Stopped(StopReason.OUT_OF_TIME)

    def _give_up(self, attempt: Attempt) -> None:
        """Report an attempt that ignores its end; its Slot is lost unless its thread returns."""
        with self._changed:
            if attempt.lease in self._attempts and not attempt.ended:
                log.error("stage_hangs", **of_lease(attempt.lease), stage=attempt.stage)
                self._deliver(attempt, given_up(attempt, 2 * self._settings.grace_seconds))
        self._rooms.init.leave(attempt.lease)
        self._rooms.eval.leave(attempt.lease)

    def _leave(self, attempt: Attempt, result: Result) -> None:
        """Free the Slot, then report: the report may bring the Slot's next Job at once."""
        self._clean_up(attempt)
        with self._changed:
            del self._attempts[attempt.lease]
            self._rooms.slots.leave(attempt.lease)
            if not attempt.ended:
                self._deliver(attempt, result)
            self._changed.notify_all()

    def _clean_up(self, attempt: Attempt) -> None:
        try:
            self._stages.clean_up(attempt)
        except Exception as error:  # the Slot becomes free and the Result is reported all the same
            log.exception("clean_up_failed", **of_lease(attempt.lease), exc_info=error)

    def _deliver(self, attempt: Attempt, result: Result) -> None:
        """Hand the Result over. Called under the lock, so that a heartbeat finds the Lease here or
        in the outbox."""
        attempt.ended = True
        result = msgspec.structs.replace(result, timings=attempt.timings)
        self._metrics.ended(result.outcome)
        self._report(result)
