"""Results on their way to the orchestrator.

- A Result stays here until the orchestrator took it or said that its Lease is lost.
- The answer to a Result may bring its Slot's next Job.
- `put` never blocks. Results may overtake each other; no two of them are about one attempt.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from rollyard.backoff import Backoff
from rollyard.errors import RollyardError, StaleAttempt, Unavailable
from rollyard.http import Peer
from rollyard.messages import Assignment, Lease, Outcome, Reported, Result

log = structlog.get_logger()

_THREADS = 8
_RETRY = Backoff(first_seconds=0.1, longest_seconds=2.0)


class Outbox:
    def __init__(self, orchestrator: Peer, take: Callable[[Assignment], None]) -> None:
        self._orchestrator = orchestrator
        self._take = take
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="report")
        self._changed = threading.Condition()
        self._undelivered: dict[tuple[str, int], Lease] = {}
        self._closed = threading.Event()

    def put(self, result: Result) -> None:
        """Take a Result for delivery; after `close` its Lease is given back instead."""
        with self._changed:
            if self._closed.is_set():
                return
            self._undelivered[_key(result.lease)] = result.lease
            self._threads.submit(self._deliver, result)

    def leases(self) -> tuple[Lease, ...]:
        """The Leases whose Result is made and not delivered."""
        with self._changed:
            return tuple(self._undelivered.values())

    def flush(self, wait_seconds: float) -> None:
        """Wait until everything is delivered, at most `wait_seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._undelivered, wait_seconds)

    def close(self) -> None:
        """Stop delivering; what is still here is not reported any more."""
        with self._changed:
            self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, result: Result) -> None:
        for delay in _RETRY.delays():
            try:
                reported = self._orchestrator.post("/results?more", result, Reported)
            except Unavailable as error:
                log.warning("result_not_delivered", lease=_key(result.lease), reason=str(error))
            except StaleAttempt:
                log.info("lease_was_lost", lease=_key(result.lease))
                return self._delivered(result)
            except Exception as error:  # refused, or no bytes can say it: neither passes later
                return self._refused(result, error)
            else:
                self._delivered(result)
                return self._next(reported)
            if self._closed.wait(delay):
                return None
        return None

    def _next(self, reported: Reported) -> None:
        """Start on the Slot's next Job; one that cannot be taken is handed back at once."""
        if reported.assignment is None:
            return
        try:
            self._take(reported.assignment)
        except RollyardError as error:
            lease = reported.assignment.lease
            self.put(Result(lease=lease, outcome=Outcome.CANCELLED, error=str(error)))

    def _refused(self, result: Result, error: Exception) -> None:
        """Report the refusal itself, once: the Lease must end one way or the other."""
        log.error("result_refused", lease=_key(result.lease), reason=str(error))
        if result.outcome is not Outcome.COMPLETED:
            return self._delivered(result)
        reason = f"the orchestrator did not take the result: {error}"
        return self._deliver(Result(lease=result.lease, outcome=Outcome.INFRA_FAILED, error=reason))

    def _delivered(self, result: Result) -> None:
        with self._changed:
            self._undelivered.pop(_key(result.lease), None)
            self._changed.notify_all()


def _key(lease: Lease) -> tuple[str, int]:
    return lease.job_id, lease.attempt
