"""`python -m tests.serving.example_service PORT [CERTIFICATE KEY]`: a service with few threads."""

import sys
import threading
from pathlib import Path

from rollyard.errors import Unavailable
from rollyard.messages import BatchRequest
from rollyard.tokens import Role, parse_tokens
from serving.access import EVERYONE, allow
from serving.bind import Bind
from serving.gunicorn import Service, serve
from serving.routes import Routes
from serving.tls import TLSFiles

WORKER_TOKEN = "worker-0123456789abcdef"
SUBMIT_TOKEN = "submit-0123456789abcdef"
THREADS = 4
LONG_REPLY_BYTES = 6 * 2**20
"""More than the system keeps for a caller who does not read."""


def start() -> Service:
    tokens = parse_tokens(f"worker {WORKER_TOKEN}\nsubmit {SUBMIT_TOKEN}\n", "the test")
    routes = Routes("example", tokens)
    opened = threading.Event()

    @routes.post("/echo", allow(Role.SUBMIT))
    def echo(request: BatchRequest) -> BatchRequest:
        return request

    @routes.post("/heartbeats", allow(Role.WORKER))
    def heartbeat(request: BatchRequest) -> BatchRequest:
        return request

    @routes.get("/gate", allow(Role.SUBMIT))
    def gate() -> str:
        """Waits until it is opened."""
        opened.wait()
        return "open"

    @routes.get("/readyz", EVERYONE, raises=(Unavailable,))
    def readyz() -> str:
        """What it looks at does not answer until the gate is open."""
        opened.wait()
        return "ready"

    @routes.post("/open", EVERYONE)
    def open_gate() -> None:
        opened.set()

    @routes.get("/health", EVERYONE)
    def health() -> None: ...

    @routes.get("/long", allow(Role.SUBMIT))
    def long() -> str:
        return "x" * LONG_REPLY_BYTES

    return Service(routes.app, opened.set)


if __name__ == "__main__":
    port, *tls = sys.argv[1:]
    files = TLSFiles(certificate=Path(tls[0]), key=Path(tls[1])) if tls else None
    serve(start, Bind(port=int(port), threads=THREADS, tls=files))
