"""Injected faults of the scripted server.

A fault belongs to one route, and shows in the next `times` requests there.
"""

import math
import threading
from enum import StrEnum

import msgspec

from llm_servers.contract import GENERATE
from llm_servers.scripted.engine import ScriptedGeneration
from rollyard.logprobs import NO_LOGPROB

_HANG_SECONDS = 600.0
"""The longest a hanging request stays unanswered."""


class FaultKind(StrEnum):
    ERROR_500 = "error_500"
    """Answer 500, as vLLM does when its engine fails."""
    HANG = "hang"
    """Do not answer until the fault is cleared."""
    TRUNCATED_JSON = "truncated_json"
    """Send the first half of the body."""
    NAN_LOGPROBS = "nan_logprobs"
    """Send NaN in place of every logprob."""
    FLOOR_LOGPROBS = "floor_logprobs"
    """Send `NO_LOGPROB` in place of every logprob, as vLLM does for NaN."""
    RAW_LOGPROBS = "raw_logprobs"
    """Send the model's own logprobs, whatever the tokens were drawn from: vLLM's default."""
    MISSING_LOGPROB = "missing_logprob"
    """Send one logprob fewer than tokens."""
    GARBAGE_TOKENS = "garbage_tokens"
    """Send token ids that are in nobody's vocabulary."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An order to show a fault; with `times` 0 to clear it, which releases requests that hang."""

    kind: FaultKind
    times: int = 1
    route: str = GENERATE


class Faults:
    """The faults still to come. Safe to use from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: dict[tuple[str, FaultKind], int] = {}

    def set(self, fault: Fault) -> None:
        with self._changed:
            if fault.times == 0:
                self._left.pop((fault.route, fault.kind), None)
            else:
                self._left[fault.route, fault.kind] = fault.times
            self._changed.notify_all()

    def take(self, route: str) -> FaultKind | None:
        """The fault that the request at `route` must show, if any."""
        with self._changed:
            for (where, kind), times in self._left.items():
                if where == route and times > 0:
                    self._left[where, kind] = times - 1
                    return kind
        return None

    def hang(self, route: str) -> None:
        """Wait until the hanging at `route` is cleared."""
        key = (route, FaultKind.HANG)
        with self._changed:
            # A used-up fault stays listed with 0 times: only clearing it removes the key.
            self._changed.wait_for(lambda: key not in self._left, timeout=_HANG_SECONDS)


def spoil(kind: FaultKind | None, generation: ScriptedGeneration) -> None:
    """Make the response to a generate request show the fault."""
    logprobs = generation.logprobs
    if kind is FaultKind.MISSING_LOGPROB:
        generation.logprobs = logprobs[:-1]
    if kind is FaultKind.GARBAGE_TOKENS:
        generation.token_ids = [10**6 + token for token in generation.token_ids]
    if kind is FaultKind.NAN_LOGPROBS:
        generation.logprobs = [math.nan] * len(logprobs)
    if kind is FaultKind.FLOOR_LOGPROBS:
        generation.logprobs = [NO_LOGPROB] * len(logprobs)
