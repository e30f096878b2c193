"""Rate limit on wrong tokens, by the address that presented them.

Owns the counts of the present minute. An address that presented too many is refused until the
minute is over, even with a right token, so that nobody can guess tokens at the speed of the
network. Loopback is exempt: everybody behind a proxy on this machine has that address.
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
"""Maximum from one address in a minute: ten processes with an outdated token present fewer."""
MINUTE_SECONDS = 60.0


class WrongTokens:
    """Counts of wrong tokens by address. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._shown: Counter[str] = Counter()

    def check(self, address: str) -> None:
        """Raise `Unavailable` if the address presented too many wrong tokens in this minute."""
        with self._lock:
            self._turn_over()
            shown = self._shown[address]
        if shown >= MAX_WRONG_TOKENS and not _is_this_machine(address):
            raise Unavailable(
                f"{shown} wrong tokens came from {address} within a minute",
                fix="give its processes a token of this service, and try again in a minute",
            )

    def note(self, address: str, path: str) -> None:
        """Count a wrong token, and log the first of a minute and the one that reaches the limit."""
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
