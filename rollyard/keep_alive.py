"""Signs of life of a trainer, also while it trains for an hour.

A Run has a thread for them. It ends with the process, when it is stopped, or when another trainer
takes the Run over; all other errors are left to the trainer's own calls.
"""

import logging
import threading
from collections.abc import Callable

from rollyard.errors import NotFound, RollyardError, TrainerReplaced

log = logging.getLogger(__name__)

ALIVE_SECONDS = 1.0
"""Interval between signs of life, a fraction of `RunSettings.trainer_silent_seconds`."""


class KeepAlive:
    def __init__(self, name: str, heard: Callable[[], object]) -> None:
        self._heard = heard
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting: one more sign of life may be on its way."""
        self._stopped.set()

    def _work(self) -> None:
        while not self._stopped.wait(ALIVE_SECONDS):
            try:
                self._heard()
            except (TrainerReplaced, NotFound) as error:
                log.info("%s", error)
                return
            except RollyardError as error:
                log.info("no sign of life: %s", error)
