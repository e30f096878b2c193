"""The phases of a weight update: each on all of its servers at once, the next when it is over.

- Where a proxy keeps requests from servers that are behind, a server that fails a phase, or takes
  far longer than the first one, leaves the update, and the others go on without it. So does one
  that keeps another update waiting.
- Elsewhere a failure of one ends the update of all: nobody would keep requests from it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as LateError

import structlog

from llm_servers.server import LLMServer, LLMSilent
from rollyard.errors import LLMUnavailable, RollyardError

log = structlog.get_logger()

TRY_ADAPTER = "try the adapter"
LATE_SECONDS = 10.0
LATE_TIMES = 3.0
"""A server is late when it takes `LATE_TIMES` the time of the first one and `LATE_SECONDS` more:
all others are paused meanwhile."""


class WeightPhases:
    """The servers of one update that are still part of it."""

    def __init__(
        self,
        servers: Sequence[LLMServer],
        *,
        leaves_behind: bool,
        others: bool,
        hurry: "Future[None] | None" = None,
    ) -> None:
        """`leaves_behind` is True if the update goes on without servers that fail; `others` if some
        are no part of it. `hurry` is done once another update waits for this one's end."""
        self.left = tuple(servers)
        self.behind: dict[str, str] = {}
        """Servers that failed, by URL, with the phase and the reason."""
        self.late: set[str] = set()
        """Those of them that had not ended in time."""
        self._hurry: Future[None] = Future() if hurry is None else hurry
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

    def leave(self, reasons: Mapping[str, str]) -> None:
        """Go on without these servers, by URL, if the update may and others have the weights or can
        get them."""
        left = tuple(server for server in self.left if server.url not in reasons)
        if self._leaves_behind and (left or self._others):
            self.left = left
            self.behind |= reasons

    def _attempt(self, name: str, act: Callable[[LLMServer], None]) -> dict[str, str]:
        began = time.monotonic()
        threads = ThreadPoolExecutor(len(self.left), thread_name_prefix=name)
        calls = {server.url: threads.submit(act, server) for server in self.left}
        threads.shutdown(wait=False)
        until = self._until(began, calls.values()) if self._leaves_behind else None
        failures = {url: self._failure(url, call, until) for url, call in calls.items()}
        return {url: reason for url, reason in failures.items() if reason}

    def _until(self, began: float, calls: Iterable["Future[None]"]) -> float | None:
        """When those that have not ended are late; returns as soon as that is known. None if all
        have."""
        pending = set(calls)
        while pending:
            done, _ = wait({*pending, self._hurry}, return_when=FIRST_COMPLETED)
            now = time.monotonic()
            if any(call.exception() is None for call in done & pending):
                return now + LATE_SECONDS + LATE_TIMES * (now - began)
            if self._hurry in done:
                return now + LATE_SECONDS
            pending -= done
        return None

    def _failure(self, url: str, call: "Future[None]", until: float | None) -> str:
        """The reason why the call failed, waiting for its end; empty if it did not."""
        try:
            call.result(None if until is None else max(0.0, until - time.monotonic()))
        except RollyardError as error:
            if isinstance(error, LLMSilent):
                self.late.add(url)
            return error.message
        except LateError:
            self.late.add(url)
            return "it has not ended long after that of another server"
        return ""


def _advice(phase: str) -> str:
    if phase in (TRY_ADAPTER, "pause"):
        return "the weights are unchanged; look at the log of the failed server"
    return "its servers stay paused: send the update again, or restart the failed server"
