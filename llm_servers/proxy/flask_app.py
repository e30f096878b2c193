"""The routes that are Flask's, asked from the event loop: those without tokens."""

import io
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import msgspec
from flask import Flask

from llm_servers.proxy.caller import CallerRequest

_OURS = ("connection", "content-length", "transfer-encoding")
"""Fields that whoever sends the answer sets."""


class FlaskReply(msgspec.Struct, frozen=True):
    status: int
    fields: str
    """Those of its head but for the length, each with the end of its line."""
    content: bytes


def ask_flask(app: Flask, port: int, request: CallerRequest) -> FlaskReply:
    """The app's answer. It may take as long as the app does."""
    said: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(
        status: str, fields: list[tuple[str, str]], _: object = None
    ) -> Any:  # nobody writes without an iterable
        said.append((status, fields))

    pieces: Iterable[bytes] = app(_environ(port, request), start_response)
    try:
        content = b"".join(pieces)
    finally:
        if hasattr(pieces, "close"):
            pieces.close()
    status, fields = said[-1]
    kept = (f"{name}: {value}\r\n" for name, value in fields if name.lower() not in _OURS)
    return FlaskReply(int(status.split(" ", 1)[0]), "".join(kept), content)


def _environ(port: int, request: CallerRequest) -> dict[str, Any]:
    head = request.head
    path, _, query = head.target.partition("?")
    fields = {f"HTTP_{name.upper().replace('-', '_')}": told for name, told in head.fields.items()}
    return {
        **fields,
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "CONTENT_TYPE": head.fields.get("content-type", ""),
        "CONTENT_LENGTH": str(head.length),
        "REMOTE_ADDR": request.peer,
        "SERVER_NAME": "llm-proxy",
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": head.version,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
