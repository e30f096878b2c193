"""Results on their way to the orchestrator.

- A Result stays here until the orchestrator took it or said that its Lease is lost.
- Results that wait together travel together. The answer to one may bring its Slot's next Job, which
  is handed on: the outbox starts nothing.
- `put` never blocks. Results may overtake each other; no two of them are about one attempt.
"""

import threading
from collections import deque
from collections.abc import Callable

import structlog

from rollyard.backoff import Backoff
from rollyard.errors import StaleAttempt, Unavailable
from rollyard.http import Peer
from rollyard.messages import Assignment, Lease, Outcome, Receipt, Reported, Result
from serving.logs import of_lease

log = structlog.get_logger()

_SENDERS = 4
"""Number of threads: a long Result holds up no other."""
_MAX_TOGETHER = 64
_MAX_TOKENS_TOGETHER = 500_000
"""Tokens of nine bytes each: far below the largest request that the orchestrator takes."""
_RETRY = Backoff(first_seconds=0.1, max_seconds=2.0)


class Outbox:
    """Owns the Results that are made and not delivered."""

    def __init__(self, orchestrator: Peer, accept_next: Callable[[Assignment], None]) -> None:
        """Begin to deliver. `accept_next` is called with every Job that an answer brings."""
        self._orchestrator = orchestrator
        self._accept_next = accept_next
        self._changed = threading.Condition()
        self._waiting: deque[Result] = deque()
        self._undelivered: set[Lease] = set()
        self._closed = threading.Event()
        self._path = "/results?more=true"
        for number in range(_SENDERS):
            threading.Thread(target=self._send, name=f"report-{number}", daemon=True).start()

    def put(self, result: Result) -> None:
        """Take a Result for delivery; after `close` it is dropped, and the farewell gives its Lease
        back."""
        with self._changed:
            if self._closed.is_set():
                return
            self._undelivered.add(result.lease)
            self._waiting.append(result)
            self._changed.notify_all()

    def drain(self) -> None:
        """Ask for no more Jobs with the Results."""
        self._path = "/results"

    def leases(self) -> tuple[Lease, ...]:
        """The Leases of the Results that are not delivered."""
        with self._changed:
            return tuple(self._undelivered)

    def flush(self, wait_seconds: float) -> None:
        """Wait until everything is delivered, at most `wait_seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._undelivered, wait_seconds)

    def close(self) -> None:
        """Stop delivering; the Results that are still here are not reported any more."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()

    def _send(self) -> None:
        while load := self._next_load():
            try:
                self._deliver(load)
            except Exception as error:  # without its threads all that runs here would be lost
                log.exception("results_not_delivered", exc_info=error)

    def _next_load(self) -> list[Result]:
        """As many waiting Results as may travel together; empty once the outbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
            if self._closed.is_set():
                return []
            load = [self._waiting.popleft()]
            tokens = _tokens(load[0])
            while self._waiting and len(load) < _MAX_TOGETHER:
                tokens += _tokens(self._waiting[0])
                if tokens > _MAX_TOKENS_TOGETHER:
                    break
                load.append(self._waiting.popleft())
            return load

    def _deliver(self, load: list[Result]) -> None:
        for delay in _RETRY.delays():
            try:
                answers = self._orchestrator.post(self._path, load, list[Reported])
            except Unavailable as error:
                log.warning("results_not_delivered", results=len(load), reason=str(error))
            except StaleAttempt:
                return self._settle(load, [Reported(receipt=Receipt.STALE)] * len(load))
            except Exception as error:  # refused, or no bytes can say it: neither passes later
                return self._refused(load, error)
            else:
                return self._settle(load, answers)
            if self._closed.wait(delay):
                return None
        return None

    def _settle(self, load: list[Result], answers: list[Reported]) -> None:
        with self._changed:
            ended = set(self._undelivered)
        for result, answer in zip(load, answers, strict=True):
            if answer.receipt is Receipt.STALE:
                log.info("lease_was_lost", **of_lease(result.lease))
            self._delivered(result)
        for answer in answers:
            # A repeated Result may be told of a Job that has meanwhile come and ended.
            if answer.assignment is not None and answer.assignment.lease not in ended:
                self._accept_next(answer.assignment)

    def _refused(self, load: list[Result], error: Exception) -> None:
        """Report the refusal itself, once: each Lease must end one way or the other."""
        if len(load) > 1:  # one of them spoils the others
            for result in load:
                self._deliver([result])
            return None
        (result,) = load
        log.error("result_refused", **of_lease(result.lease), reason=str(error))
        if result.outcome is not Outcome.COMPLETED:
            return self._delivered(result)
        reason = f"the orchestrator did not take the result: {error}"
        failed = Result(lease=result.lease, outcome=Outcome.INFRA_FAILED, error=reason)
        return self._deliver([failed])

    def _delivered(self, result: Result) -> None:
        with self._changed:
            self._undelivered.discard(result.lease)
            self._changed.notify_all()


def _tokens(result: Result) -> int:
    sequences = () if result.trajectory is None else result.trajectory.sequences
    return sum(len(sequence.token_ids) for sequence in sequences)
