"""The phases of a weight update: each on all of its servers at once, the next when it is over.

- Where a proxy keeps requests from servers that are behind, a server that fails a phase, or takes
  far longer than the first one, leaves the update, and the others go on without it.
- Elsewhere a failure of one ends the update of all: nobody would keep requests from it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as LateError

import structlog

from llm_servers.server import LLMServer
from rollyard.errors import LLMUnavailable, RollyardError

log = structlog.get_logger()

TRY_ADAPTER = "try the adapter"
LATE_SECONDS = 10.0
LATE_TIMES = 3.0
"""A server is late when it takes `LATE_TIMES` the time of the first one and `LATE_SECONDS` more:
all others are paused meanwhile."""


class WeightPhases:
    """The servers of one update that are still part of it."""

    def __init__(self, servers: Sequence[LLMServer], *, leaves_behind: bool, others: bool) -> None:
        """`leaves_behind` is True if the update goes on without servers that fail; `others` if some
        that are no part of it have the weights already."""
        self.left = tuple(servers)
        self.behind: dict[str, str] = {}
        """Servers that failed, by URL, with the phase and the reason."""
        self._leaves_behind = leaves_behind
        self._others = others
        self._all = len(servers)

    def run(self, name: str, act: Callable[[LLMServer], None]) -> None:
        """Run `act` on all servers that are left. Raises one `LLMUnavailable` for all that failed,
        unless the update goes on without them."""
        if not self.left:
            return
        failures = self._attempt(name, act)
        if not failures:
            return
        log.error("weight_update_failed", phase=name, failures=failures)
        self.left = tuple(server for server in self.left if server.url not in failures)
        self.behind |= {url: f"phase '{name}': {reason}" for url, reason in failures.items()}
        if not self._leaves_behind or not (self.left or self._others):
            told = "; ".join(f"{url}: {reason}" for url, reason in failures.items())
            raise LLMUnavailable(
                f"the weight update failed in phase '{name}' on {len(failures)} of "
                f"{self._all} LLM servers: {told}",
                fix=_advice(name),
            )

    def _attempt(self, name: str, act: Callable[[LLMServer], None]) -> dict[str, str]:
        began = time.monotonic()
        threads = ThreadPoolExecutor(len(self.left), thread_name_prefix=name)
        calls = {server.url: threads.submit(act, server) for server in self.left}
        threads.shutdown(wait=False)
        until = None
        if self._leaves_behind and _one_succeeds(calls.values()):
            now = time.monotonic()
            until = now + LATE_SECONDS + LATE_TIMES * (now - began)
        failures = {url: _failure(call, until) for url, call in calls.items()}
        return {url: reason for url, reason in failures.items() if reason}


def _one_succeeds(calls: Iterable["Future[None]"]) -> bool:
    """Whether one does; returns as soon as that is known."""
    pending = set(calls)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        if any(call.exception() is None for call in done):
            return True
    return False


def _failure(call: "Future[None]", until: float | None) -> str:
    """The reason why the call failed, waiting for its end; empty if it did not."""
    try:
        call.result(None if until is None else max(0.0, until - time.monotonic()))
    except RollyardError as error:
        return error.message
    except LateError:
        return "it has not ended long after that of another server"
    return ""


def _advice(phase: str) -> str:
    if phase in (TRY_ADAPTER, "pause"):
        return "the weights are unchanged; look at the log of the failed server"
    return "its servers stay paused: send the update again, or restart the failed server"
