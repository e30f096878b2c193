"""Progress of a Batch in one line of the terminal, rewritten in place and erased at the end."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rollyard.messages import RunStatus

_REWRITE = "\r\x1b[K"
"""Control sequence: carriage return, then erase the line."""

ShowProgress = Callable[[RunStatus], None]


def on_a_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def watched(
    on_progress: ShowProgress | None, *, show_progress: bool
) -> AbstractContextManager[ShowProgress]:
    """The receiver of progress: `on_progress` if given, else the terminal's line if wanted."""
    if on_progress is None and show_progress:
        return progress_line()
    return nullcontext(on_progress or (lambda _: None))


@contextmanager
def progress_line() -> Iterator[ShowProgress]:
    """A block with a function that shows each status in the same line of standard error."""
    shown = ""

    def show(status: RunStatus) -> None:
        nonlocal shown
        line = in_a_line(status, shutil.get_terminal_size().columns)
        if line != shown:
            sys.stderr.write(_REWRITE + line)
            sys.stderr.flush()
            shown = line

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write(_REWRITE)
            sys.stderr.flush()


def in_a_line(status: RunStatus, columns: int) -> str:
    """The Batch's progress and what it waits for, cut to the width of the terminal."""
    done, wanted = status.effective_groups, status.requested_batch_size
    line = f"{status.run_id}: {done} of {wanted}; {status.waiting_for}"
    return line if len(line) < columns else f"{line[: max(0, columns - 2)]}…"
