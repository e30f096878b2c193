"""Serve a Flask app on a real local port from a thread of the test, and read what it is sent."""

import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from flask import Flask
from werkzeug.serving import make_server

from serving.api import unpack
from serving.bodies import body

T = TypeVar("T")


def read(kind: type[T]) -> T:
    """The request's body as a message of type `kind`. Raises `InvalidMessage`."""
    return unpack(body(), kind, kind)


@contextmanager
def served(
    app: Flask, port: int = 0, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Yields the app's URL."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server(host, port, app, threaded=True, ssl_context=tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
