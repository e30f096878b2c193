"""An orchestrator of this process at a URL, for trainers in other processes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from rollyard import codec
from rollyard.errors import RollyardError
from rollyard.http import Peer
from rollyard.messages import (
    Batch,
    BatchRequest,
    Failure,
    Prompt,
    RunSettings,
    SignOfLife,
    Trainer,
    WeightUpdate,
)

MESSAGES: dict[str, Any] = {
    "runs": RunSettings,
    "prompts": list[Prompt],
    "batches": BatchRequest,
    "trainer": Trainer,
    "heard": SignOfLife,
    "weights": WeightUpdate,
}
"""What is posted to a path that ends so; nothing to others."""


@contextmanager
def served(orchestrator: Peer, called: Callable[[], object]) -> Iterator[str]:
    """Its URL. `called` is called with each call that a trainer's main thread may have made."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(lambda: orchestrator.get(self.path, Batch))

        def do_POST(self) -> None:
            name = urlsplit(self.path).path.rpartition("/")[2]
            data = self.rfile.read(int(self.headers["Content-Length"]))
            message = codec.decode(data, MESSAGES[name]) if name in MESSAGES else None
            self._answer(lambda: orchestrator.post(self.path, message, object))

        def _answer(self, ask: Callable[[], Any]) -> None:
            if not self.path.split("?")[0].endswith("/heard"):
                called()
            try:
                status, answer = 200, ask()
            except RollyardError as error:
                status = error.status
                answer = Failure(code=error.code, message=error.message, fix=error.fix)
            data = codec.encode(answer)
            with suppress(ConnectionError):  # it was killed
                self.send_response(status)
                self.send_header("Content-Type", codec.MSGPACK)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="orchestrator")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
