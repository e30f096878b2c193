"""The job runner: INIT (environment, sandbox) > RUN (turns) > EVAL (reward).

- Every accepted Lease yields exactly one Result, whatever happens on the way.
- A parked attempt keeps its Slot, its sandbox and its thread, and its time stands still.
- Each stage has threads and a deadline of its own. A stage that ignores its deadline is reported as
  failed all the same; its Slot stays busy until its thread comes back.
- A reward is given for what the policy did. Everything else is `infra_failed`, with the reason.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import structlog

from agent_server.attempt import Attempt, Stage
from agent_server.deadline import Deadline, after
from agent_server.endings import cancelled, completed, failed, overdue
from agent_server.generation import Unlabelled
from agent_server.metrics import Metrics
from agent_server.parking import ParkedTooLong
from agent_server.slots import Slots
from agent_server.stages import Stages
from agent_server.stop import Reason, Stopped, StopSignal
from rollyard.errors import InvalidMessage, RollyardError, Unavailable
from rollyard.messages import Assignment, Lease, Message, Refusal, Result, Taken

log = structlog.get_logger()


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    slots: int = 16
    ahead: int = 0
    """Jobs taken beyond the Slots: they are through INIT when a Slot becomes free."""
    init_threads: int = 4
    eval_threads: int = 4
    init_seconds: float = 60.0
    eval_seconds: float = 60.0
    grace_seconds: float = 15.0
    """What a stage may take to end after its deadline before it is given up."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < (0 if name == "ahead" else 1e-9):
                raise InvalidMessage(f"{name} must be positive, got {getattr(self, name)}")


class Status(Message, frozen=True):
    """What an agent server is doing now."""

    server_id: str
    slots: int
    busy: int
    ahead: int
    """Jobs that wait for a Slot here."""
    parked: int
    """Jobs that stand still."""
    draining: bool
    stages: dict[str, int]
    leases: tuple[Lease, ...]


class JobRunner:
    def __init__(
        self,
        settings: RunnerSettings,
        stages: Stages,
        metrics: Metrics,
        report: Callable[[Result], None],
    ) -> None:
        self._settings = settings
        self._stages = stages
        self._metrics = metrics
        self._report = report
        self._changed = threading.Condition()
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._slots: Slots[Attempt] = Slots(settings.slots, settings.ahead)
        self._draining = False
        self._pools = {
            Stage.INIT: ThreadPoolExecutor(settings.init_threads, thread_name_prefix="init"),
            Stage.RUN: ThreadPoolExecutor(settings.slots, thread_name_prefix="run"),
            Stage.EVAL: ThreadPoolExecutor(settings.eval_threads, thread_name_prefix="eval"),
        }
        metrics.watch(busy=lambda: self._slots.busy, parked=self._parked)

    def accept(self, assignment: Assignment) -> None:
        """Take a Lease and start on it; taking the same one again changes nothing."""
        source = assignment.job.prompt.data_source
        make = self._stages.environments.get(source)
        if make is None:
            raise InvalidMessage(
                f"unknown environment {source!r}",
                fix=f"data_source must be one of: {', '.join(sorted(self._stages.environments))}",
            )
        attempt = Attempt(assignment, make)
        with self._changed:
            if self._draining:
                raise Unavailable("this agent server is shutting down")
            if attempt.key in self._attempts:
                return
            self._slots.take(attempt)
            self._attempts[attempt.key] = attempt
        self._submit(attempt, Stage.INIT)

    def accept_all(self, load: Sequence[Assignment]) -> Taken:
        """Take each of these Leases, or say why not."""
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
        """Stop the Lease's attempt, wherever it is; one that does not run is already stopped."""
        attempt = self._attempt(lease)
        if attempt is None or attempt.cancelled:
            return
        after(self._settings.grace_seconds, partial(self._give_up, attempt))
        attempt.cancel()
        self._leave_if_ready(attempt)

    def park(self, lease: Lease, as_of: float | None = None) -> None:
        """Let the Lease's attempt stand still before it asks for more tokens, see `Parking`."""
        if attempt := self._attempt(lease):
            attempt.parking.park(as_of)

    def resume(self, lease: Lease, as_of: float | None = None) -> None:
        """Let the Lease's attempt go on if it is parked."""
        if attempt := self._attempt(lease):
            attempt.parking.resume(as_of)

    def leases(self) -> tuple[Lease, ...]:
        """The Leases whose Result is not made yet."""
        with self._changed:
            return tuple(each.lease for each in self._attempts.values() if not each.ended)

    def status(self, server_id: str) -> Status:
        with self._changed:
            attempts = tuple(self._attempts.values())
            draining, busy, waiting = self._draining, self._slots.busy, self._slots.waiting
        stages = dict.fromkeys(map(str, Stage), 0)
        for attempt in attempts:
            stages[attempt.stage] += 1
        return Status(
            server_id=server_id,
            slots=self._settings.slots,
            busy=busy,
            ahead=waiting,
            parked=self._parked(),
            draining=draining,
            stages=stages,
            leases=tuple(attempt.lease for attempt in attempts),
        )

    def drain(self) -> None:
        """Take no more Leases."""
        with self._changed:
            self._draining = True

    def close(self, wait_seconds: float) -> tuple[Lease, ...]:
        """Stop every attempt; returns the Leases that were running."""
        self.drain()
        leases = self.leases()
        for lease in leases:
            self.cancel(lease)
        with self._changed:
            self._changed.wait_for(lambda: not self._attempts, wait_seconds)
            hung = tuple(self._attempts.values())
        for attempt in hung:
            self._clean_up(attempt)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        return leases

    def _attempt(self, lease: Lease) -> Attempt | None:
        with self._changed:
            return self._attempts.get((lease.job_id, lease.attempt))

    def _parked(self) -> int:
        with self._changed:
            return sum(attempt.parking.standing for attempt in self._attempts.values())

    def _submit(self, attempt: Attempt, stage: Stage) -> None:
        """Queue a stage; its deadline counts from here, so that a wait for threads has one too."""
        stop = attempt.enter(stage)
        seconds = self._deadline_seconds(attempt, stage)
        attempt.deadline = deadline = Deadline(
            (seconds, partial(stop.stop, Reason.OUT_OF_TIME)),
            (seconds + self._settings.grace_seconds, partial(self._give_up, attempt)),
        )
        try:
            deadline.start()
            self._pools[stage].submit(self._work, attempt, stop, deadline)
        except RuntimeError as error:  # no thread is to be had, and the Lease must end all the same
            self._leave(attempt, self._unfinished(attempt, error))

    def _work(self, attempt: Attempt, stop: StopSignal, deadline: Deadline) -> None:
        """One stage of one attempt, and whatever comes next."""
        stage, began = attempt.stage, time.monotonic()
        try:
            stop.check()
            self._stages.work(attempt, stop)
            result = completed(attempt) if stage is Stage.EVAL else None
        except Exception as error:  # the boundary of a Job: whatever it is, it becomes a Result
            result = self._unfinished(attempt, error)
        deadline.stop()
        self._metrics.staged(stage, attempt.spent(stage, began))
        if result is not None or attempt.ended:
            self._leave(attempt, result)
        elif stage is Stage.INIT:
            self._run_when_a_slot_is_free(attempt)
        else:
            self._submit(attempt, _NEXT[stage])

    def _run_when_a_slot_is_free(self, attempt: Attempt) -> None:
        with self._changed:
            may_work = self._slots.may_work(attempt)
            if not may_work:
                seconds = attempt.job.limits.job_seconds
                attempt.patience = after(seconds, partial(self._leave_if_ready, attempt))
        if may_work:
            self._submit(attempt, Stage.RUN)
        elif attempt.cancelled:  # before it was ready: nobody else will end it
            self._leave_if_ready(attempt)

    def _leave_if_ready(self, attempt: Attempt) -> None:
        """An attempt that waits for a Slot has no thread that would notice that it is over."""
        with self._changed:
            ready = self._slots.withdraw(attempt)
        if ready:
            attempt.be_patient_no_more()
            self._leave(attempt, cancelled(attempt))

    def _unfinished(self, attempt: Attempt, error: Exception) -> Result:
        """What an attempt that raised `error` has come to."""
        if attempt.cancelled:
            return cancelled(attempt)
        if isinstance(error, ParkedTooLong | Unlabelled):  # neither is the Job's fault, nor ours
            return cancelled(attempt, str(error))
        if isinstance(error, Stopped):
            reason = overdue(attempt, self._deadline_seconds(attempt, attempt.stage))
        elif isinstance(error, RollyardError):
            reason = str(error)
        else:
            log.exception("stage_failed", lease=attempt.name, stage=attempt.stage, exc_info=error)
            reason = f"{type(error).__name__} in {attempt.stage}: {error}"
        return failed(attempt, reason)

    def _give_up(self, attempt: Attempt) -> None:
        """Report an attempt that does not react; `_leave` frees its Slot if it ever comes back."""
        seconds = self._deadline_seconds(attempt, attempt.stage) + self._settings.grace_seconds
        if attempt.cancelled:
            result = cancelled(attempt)
        else:
            result = failed(attempt, overdue(attempt, seconds))
        with self._changed:
            if attempt.key in self._attempts and attempt.end():
                log.error("stage_hangs", lease=attempt.name, stage=attempt.stage)
                self._deliver(attempt, result)

    def _leave(self, attempt: Attempt, result: Result | None) -> None:
        """Free the Slot, then report: the report may bring the Slot's next Job at once."""
        self._clean_up(attempt)
        with self._changed:
            del self._attempts[attempt.key]
            following = self._slots.leave(attempt)
            if attempt.end() and result is not None:
                self._deliver(attempt, result)
            self._changed.notify_all()
        if following is not None:
            following.be_patient_no_more()
            self._submit(following, Stage.RUN)

    def _clean_up(self, attempt: Attempt) -> None:
        """Whatever goes wrong in there, the Slot becomes free and the Result is reported."""
        try:
            self._stages.clean_up(attempt)
        except Exception as error:
            log.exception("clean_up_failed", lease=attempt.name, exc_info=error)

    def _deliver(self, attempt: Attempt, result: Result) -> None:
        """Hand over under the lock, so that a heartbeat finds the Lease here or in the outbox."""
        result = msgspec.structs.replace(result, timings=attempt.timings)
        self._metrics.ended(result.outcome)
        self._report(result)

    def _deadline_seconds(self, attempt: Attempt, stage: Stage) -> float:
        if stage is Stage.INIT:
            return self._settings.init_seconds
        if stage is Stage.RUN:
            return attempt.job.limits.job_seconds
        return self._settings.eval_seconds


_NEXT = {Stage.RUN: Stage.EVAL}
