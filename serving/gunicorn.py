"""Run Flask apps under gunicorn, each on a port of its own: one worker, many threads.

The app, its threads and its connections are made inside the worker, after the fork.
"""

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import msgspec
import structlog
from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from serving import logs
from serving.bind import Bind, warn_of_exposed
from serving.descriptors import allow_connections
from serving.garbage import collect_seldom
from serving.ports import ByPort
from serving.tls import ServerTLS
from serving.worker import Worker

ENDED_FOR_GOOD = Arbiter.WORKER_BOOT_ERROR
"""Status with which a worker exits that no other is to take the place of."""
STANDSTILL_SECONDS = 600
"""Time without a sign of the worker's main thread after which it is replaced. That thread waits for
nothing, so that shorter silences are those of a whole machine, which every Job would pay for."""

log = structlog.get_logger()


class Service(msgspec.Struct, frozen=True):
    """Flask apps and how to stop what runs beside them."""

    app: Flask
    close: Callable[[], None]
    """Function called once the last request is answered, maybe seconds after the SIGTERM."""
    drain: Callable[[], None] = lambda: None
    """Function called at the SIGTERM; it must not block."""
    doors: tuple[Flask, ...] = ()
    """Further apps, in the order of the addresses that `serve` is given for them."""


class _Log(Logger):  # type: ignore[misc]
    """gunicorn's logger, in the format of this process's log."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        logs.write_alike(self.error_log.handlers)


class _Gunicorn(BaseApplication):  # type: ignore[misc]
    def __init__(
        self, start: Callable[[], Service], binds: Sequence[Bind], connections: int
    ) -> None:
        self._start = start
        self._binds = binds
        self._connections = connections
        self._service: Service | None = None
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": [bind.address for bind in self._binds],
            "workers": 1,  # lanes, rooms and waits are counted per process
            "worker_class": Worker,
            "logger_class": _Log,
            "threads": self._binds[0].threads,
            "worker_connections": self._connections,
            "backlog": 4096,  # hundreds of agent servers may connect at once
            "keepalive": 60,
            "timeout": STANDSTILL_SECONDS,
            "graceful_timeout": 5,
            "control_socket_disable": True,
            "post_worker_init": self._worker_ready,
            "worker_exit": self._worker_exit,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> ByPort:
        self._service = self._start()
        apps = (self._service.app, *self._service.doors)
        return ByPort(
            {bind.port: app for bind, app in zip(self._binds, apps, strict=True)},
            {bind.port: ServerTLS(bind.tls) for bind in self._binds if bind.tls is not None},
        )

    def _worker_ready(self, _worker: object) -> None:
        assert self._service is not None
        drain, leave = self._service.drain, signal.getsignal(signal.SIGTERM)
        assert callable(leave)

        def told_to_end(number: int, frame: FrameType | None) -> None:
            drain()
            leave(number, frame)

        signal.signal(signal.SIGTERM, told_to_end)
        # `signal.signal` has made SIGTERM interrupt the system calls of active requests again.
        signal.siginterrupt(signal.SIGTERM, False)
        collect_seldom()

    def _worker_exit(self, _arbiter: object, _worker: object) -> None:
        if self._service is not None:
            self._service.close()


def serve(start: Callable[[], Service], *binds: Bind) -> None:
    """Serve until SIGTERM or SIGINT. `start` runs in the worker and makes the whole service, whose
    app listens on the first of `binds` and whose doors on the others."""
    warn_of_exposed(binds)
    _Gunicorn(start, binds, allow_connections()).run()
