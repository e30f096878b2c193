"""Entry point of the `rollyard` command, which handles signals before slow imports begin.

Exit codes: 0 done, 1 failed or refused (one sentence on stderr), 2 bad usage, 130 stopped by Ctrl-C
or SIGTERM.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

STOPPED = 130
BAD_USAGE = 2


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM. It is no `Exception`, so that only `main` catches it."""


def main() -> None:
    _on_signals(_leave)  # nothing has been started yet that would have to be stopped
    _check_arguments(sys.argv[1:])
    try:
        from launch.commands import run
    except ModuleNotFoundError as error:
        _end(
            f"the command line needs more than the client: there is no {error.name}; "
            "install it with `pip install 'rollyard[launch]'`",
            code=1,
        )
    _on_signals(_stop)
    try:
        failure = run()
    except Interrupted:
        _end("stopped", code=STOPPED)
    if failure:
        _end(failure, code=1)


def _check_arguments(arguments: list[str]) -> None:
    """Refuse arguments that are not text: they end up in URLs, JSON and logs."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            _end(f"the argument {argument!a} is not UTF-8 text", code=BAD_USAGE)


def _on_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), b"rollyard: stopped\n")
    os._exit(STOPPED)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Interrupted


def _end(sentence: str, *, code: int) -> NoReturn:
    show_cursor()
    sys.stderr.write(f"rollyard: {sentence}\n")
    sys.exit(code)


def show_cursor() -> None:
    """Make the terminal's cursor visible, which a spinner or trainer may have left hidden."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
