"""The keeper of weights, which restores the published weights on servers that restarted.

- One daemon thread carries out one order at a time. Orders that come meanwhile are dropped: the
  next heartbeat brings the order again. Loading takes minutes, and a stop does not wait for it.
- A failure is kept for the orchestrator to hear of, and retried with the next order.
"""

import threading
from collections.abc import Callable

import structlog

from llm_servers.weights import WeightUpdater
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.messages import WeightUpdate

log = structlog.get_logger()

PUBLISH = "publish the weights again, with a higher version"


class Keeper:
    def __init__(self, updater: WeightUpdater, changed: Callable[[], None]) -> None:
        self._updater = updater
        self._changed = changed
        self._at_work: threading.Thread | None = None
        self.waiting_for = "the orchestrator to say which weights are published"
        """What the keeper waits for; empty once the servers have the published weights, or if only
        the trainer can help."""
        self.trouble = ""
        """Reason why the servers cannot serve the published weights; empty if they can."""

    def obey(self, published: WeightUpdate | None) -> None:
        """Begin to load the published weights on every server that answers and lacks them."""
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
            # Only an update by the trainer can help, so that this node is ready, to take one.
            fixes = dict.fromkeys((error.fix, PUBLISH)) if error.fix else (PUBLISH,)
            self.trouble = f"{error.message}; {', or '.join(fixes)}"
            self.waiting_for, mended = "", False
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
