"""Lets the orchestrator know that a trainer lives, also while it trains for an hour.

A thread of its own for a Run. It ends with the process, when it is stopped, or when the Run is
another trainer's; what else goes wrong is for the trainer's own calls to say.
"""

import logging
import threading
from collections.abc import Callable

from rollyard.errors import NotFound, RollyardError, TrainerReplaced

log = logging.getLogger(__name__)

ALIVE_SECONDS = 1.0
"""Between two signs of life; `RunSettings.trainer_silent_seconds` is a few of them."""


class KeepAlive:
    def __init__(self, name: str, heard: Callable[[], object]) -> None:
        self._heard = heard
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """There may be one more sign of life, which is on its way."""
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
