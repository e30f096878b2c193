"""The loops of the orchestrator's threads, which outlive every outage of Redis."""

import threading
from collections.abc import Callable

import structlog

from rollyard.errors import QueueUnavailable

log = structlog.get_logger()

RETRY_SECONDS = 0.5


def run_through_outages(loop: Callable[[threading.Event], None], stopping: threading.Event) -> None:
    """Run `loop` until `stopping` is set, anew each time that it finds the queues unavailable."""
    while not stopping.is_set():
        try:
            loop(stopping)
        except QueueUnavailable as error:
            name = threading.current_thread().name
            log.warning("thread_waits_for_redis", thread=name, error=error.message)
            stopping.wait(RETRY_SECONDS)
