"""Histories: events as JSON lines, one file for each writer, each line written before it counts.

A line is handed to the kernel whole, so that it outlives its writer's kill -9. A line of several
pages may still be torn by it: without an end it counts as never written, and the next writer cuts
it off.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

Event = dict[str, Any]


class History:
    def __init__(self, path: Path) -> None:
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, event: str, **fields: Any) -> None:
        line = {"at": time.time(), "event": event, **fields}
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def read(path: Path) -> Iterator[Event]:
    if path.exists():
        with path.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield msgspec.json.decode(line)
