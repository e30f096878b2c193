"""One line on the terminal that says how far a Batch is; it is rewritten, and gone in the end."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rollyard.messages import RunStatus

_REWRITE = "\r\x1b[K"
"""To the start of the line, and what is there is erased."""

ShowProgress = Callable[[RunStatus], None]


def on_a_terminal() -> bool:
    """Whether somebody watches the standard error output."""
    return sys.stderr is not None and sys.stderr.isatty()


def watched(
    on_progress: ShowProgress | None, *, show_progress: bool
) -> AbstractContextManager[ShowProgress]:
    """Whoever hears how far a Batch is: `on_progress`, else the terminal's line, else nobody."""
    if on_progress is None and show_progress:
        return progress_line()
    return nullcontext(on_progress or (lambda _: None))


@contextmanager
def progress_line() -> Iterator[ShowProgress]:
    """Shows each status that it is given in the same line of the standard error output."""
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
    """How far the Batch is and what it waits for, cut to the width of the terminal."""
    done, wanted = status.effective_groups, status.requested_batch_size
    line = f"{status.run_id}: {done} of {wanted}; {status.waiting_for}"
    return line if len(line) < columns else f"{line[: max(0, columns - 2)]}…"
