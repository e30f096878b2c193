"""Calls to the orchestrator, repeated while it is away, or while its token is not there yet.

An error is raised as if by the call itself: how often it was tried, and by what, helps nobody.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from rollyard.backoff import Backoff
from rollyard.errors import RollyardError, Unauthorized, Unavailable
from rollyard.http import Peer

log = logging.getLogger(__name__)

T = TypeVar("T")


class Connection:
    """Safe to share between threads.

    `find_token` looks for the token to show, empty if there is none; None where it is given.
    """

    def __init__(
        self, peer: Peer, patience_seconds: float, find_token: Callable[[], str] | None = None
    ) -> None:
        self._peer = peer
        self._patience_seconds = patience_seconds
        self._find_token = find_token
        self._found = ""
        if find_token is not None:
            self._found = find_token()
            peer.show_token(self._found)

    def call(self, work: Callable[[Peer], T]) -> T:
        """`work`, repeated while the orchestrator is away. All of its calls may be repeated."""
        patience = Backoff(longest_seconds=2.0, total_seconds=self._patience_seconds)
        delays = patience.delays()
        while True:
            shown = self._found
            try:
                return work(self._peer)
            except RollyardError as error:
                delay = next(delays, None) if self._may_pass(error, shown) else None
                if delay is None:
                    raise self._explained(error).with_traceback(None) from error.__cause__
                log.info("trying again in %.1f s: %s", delay, error)
                time.sleep(delay)

    def _may_pass(self, error: RollyardError, shown: str) -> bool:
        """Whether the same call may be answered otherwise before long."""
        if not isinstance(error, Unauthorized) or self._find_token is None:
            return isinstance(error, Unavailable)
        # `rollyard up` leaves its tokens for clients only when all of it has started.
        self._found = self._find_token()
        self._peer.show_token(self._found)
        return self._found != shown or not self._found

    def _explained(self, error: RollyardError) -> RollyardError:
        if not isinstance(error, Unauthorized) or self._find_token is None or self._found:
            return error
        return Unauthorized(
            f"{error.message}: none was found",
            fix="`rollyard up` leaves one for this user's programs once all of it has started; "
            "elsewhere give the client a token_file, or set ROLLYARD_TOKEN_FILE",
        )
