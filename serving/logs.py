"""Structured logs on stderr: one record a line, for people or as JSON.

Fields are named alike everywhere: `server_id`, `run_id`, `job_id`, `attempt`, `reason`.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterable, MutableMapping
from typing import Any

import structlog

from rollyard.messages import Lease
from serving.log_format import LogFormat

FOLD_SECONDS = 30.0
"""Seconds for which a repeated warning or error is counted instead of logged."""
MAX_FOLDED = 1024
"""Number of distinct records that are remembered."""
_ALWAYS_SAID = frozenset(("debug", "info"))


def configure(service: str, form: LogFormat = LogFormat.TEXT) -> None:
    """Send all log lines of this process to stderr, each naming `service`."""
    renderer: Any = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    if form is LogFormat.JSON:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            Folding(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # as it is then
    )
    structlog.contextvars.bind_contextvars(service=service)


def write_alike(handlers: Iterable[logging.Handler]) -> None:
    """Let these handlers of a library write in the format of this process's log."""
    processors = structlog.get_config()["processors"]
    if not isinstance(processors[0], Folding):
        return  # `configure` was not called
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=processors[1:-1],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, processors[-1]],
    )
    for handler in handlers:
        handler.setFormatter(formatter)


def of_lease(lease: Lease) -> dict[str, object]:
    """The fields of a record about this Lease's attempt."""
    return {"job_id": lease.job_id, "attempt": lease.attempt}


class Folding:
    """A structlog processor that logs a warning or an error once per `FOLD_SECONDS`; the next
    record after that says how often it was repeated."""

    def __init__(self) -> None:
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}
        """Record -> when it was logged (monotonic seconds), and how often it was repeated since."""
        self._changing = threading.Lock()

    def __call__(
        self, _logger: object, method: str, record: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if method in _ALWAYS_SAID:
            return record
        same = (method, *sorted(_shown(name, value) for name, value in record.items()))
        now = time.monotonic()
        with self._changing:
            said, since = self._said.get(same, (-FOLD_SECONDS, 0))
            if now - said < FOLD_SECONDS:
                self._said[same] = (said, since + 1)
                raise structlog.DropEvent
            if len(self._said) >= MAX_FOLDED:
                self._said.clear()  # at worst a record is logged once more
            self._said[same] = (now, 0)
        if since:
            record["repeated"] = since
        return record


def _shown(name: str, value: object) -> tuple[str, str]:
    """A field as text, comparable between records."""
    # `log.exception` passes `exc_info=True`, which would fold different exceptions together.
    under_way = name == "exc_info" and value is True
    return name, repr(sys.exc_info()[1] if under_way else value)
