"""Puts the published weights on whatever comes back without them.

- One thread works, an order at a time; while it does, further orders are not taken: the next
  heartbeat brings them anew. Loading may take minutes, for which no process waits with its end.
- What goes wrong is kept, to be told to the orchestrator, and tried again with the next order.
"""

import threading
from collections.abc import Callable

import structlog

from llm_servers.weights import WeightUpdater
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.messages import WeightUpdate

log = structlog.get_logger()


class Keeper:
    def __init__(self, updater: WeightUpdater, changed: Callable[[], None]) -> None:
        self._updater = updater
        self._changed = changed
        self._at_work: threading.Thread | None = None
        self.waiting_for = "the orchestrator to say which weights are published"
        """Empty once they are on, or cannot be put on whatever is tried again."""
        self.trouble = ""
        """Why the servers cannot serve what was published."""

    def obey(self, published: WeightUpdate | None) -> None:
        """Bring what was published to every server that answers without it."""
        if self._at_work is None or not self._at_work.is_alive():
            self._at_work = threading.Thread(
                target=self._restore, args=(published,), name="weights", daemon=True
            )
            self._at_work.start()

    def _restore(self, published: WeightUpdate | None) -> None:
        before = (self.trouble, self.waiting_for)
        try:
            mended = self._updater.restore(published)
        except InvalidMessage as error:
            # Only the trainer can help, and it does so by an update: this node is ready for one.
            self.waiting_for, mended = "", False
            self.trouble = f"{error.message}; publish the weights again, with a higher version"
        except RollyardError as error:
            mended, self.trouble = False, str(error)
        except Exception as error:
            log.exception("weights_not_put_on", exc_info=error)
            mended, self.trouble = False, f"{type(error).__name__}: {error}"
        else:
            self.trouble = self.waiting_for = ""
        if self.trouble and self.trouble != before[0]:
            log.error("weights_not_put_on", reason=self.trouble)
        if mended or (self.trouble, self.waiting_for) != before:
            self._changed()
