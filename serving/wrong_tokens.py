"""Wrong tokens by the address that showed them: told in the log, and not taken without end.

Owns the counts of the present minute. An address that showed too many is refused until the minute
is over, whatever it shows then, so that nobody tries tokens at the speed of the network. Loopback
is not: everybody behind a proxy on this machine has that address.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address

import structlog

from rollyard.errors import Unavailable

log = structlog.get_logger()

MAX_WRONG_TOKENS = 300
"""Of one address in a minute: ten processes with a token that was replaced show fewer."""
MINUTE_SECONDS = 60.0


class WrongTokens:
    """Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._shown: Counter[str] = Counter()

    def check(self, address: str) -> None:
        """Raises `Unavailable` for an address that showed too many."""
        with self._lock:
            self._turn_over()
            shown = self._shown[address]
        if shown >= MAX_WRONG_TOKENS and not _is_this_machine(address):
            raise Unavailable(
                f"{shown} wrong tokens came from {address} within a minute",
                fix="give its processes a token of this service, and try again in a minute",
            )

    def note(self, address: str, path: str) -> None:
        """One came; the log tells the first of a minute, and when they are too many."""
        with self._lock:
            self._turn_over()
            self._shown[address] += 1
            shown = self._shown[address]
        if shown in (1, MAX_WRONG_TOKENS):
            log.warning("wrong_token", address=address, path=path, within_a_minute=shown)

    def _turn_over(self) -> None:
        if self._clock() - self._since >= MINUTE_SECONDS:
            self._since = self._clock()
            self._shown.clear()


def _is_this_machine(address: str) -> bool:
    try:
        calls_from = ip_address(address)
    except ValueError:  # no address at all: a socket of this machine
        return True
    # a socket for both families shows an IPv4 address wrapped in one of IPv6
    return (getattr(calls_from, "ipv4_mapped", None) or calls_from).is_loopback
