"""Log files of processes: rotation at each start, and the last line for messages."""

import contextlib
from itertools import pairwise
from pathlib import Path

MAX_EARLIER_LOGS = 3
"""Logs of earlier starts kept for each process: `llm-0.log.1` is the latest of them."""
MAX_TAIL_BYTES = 65536
MAX_LINE_CHARACTERS = 300


def make_room(log: Path) -> None:
    """Rotate `log`: its content moves to `.1`, that of `.1` to `.2`, and so on."""
    names = [log, *(log.with_name(f"{log.name}.{n}") for n in range(1, MAX_EARLIER_LOGS + 1))]
    for younger, older in reversed(list(pairwise(names))):
        with contextlib.suppress(FileNotFoundError):
            younger.replace(older)


def last_line(log: Path, begins: int = 0) -> str:
    """The beginning of the last line that is not blank, of what follows the first `begins` bytes;
    empty if there is none."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(begins, log.stat().st_size - MAX_TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:MAX_LINE_CHARACTERS]
    return ""
