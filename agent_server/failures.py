"""Failures told to those who did not cause them: in one sentence, or with their traceback."""

import traceback

from rollyard.errors import RollyardError

MAX_SHOWN_CHARACTERS = 500
MAX_SHOWN_FRAMES = 20
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"


def one_sentence(what: str, error: BaseException) -> str:
    """What failed, how, and in which line; the message alone if `error` is one of ours."""
    try:
        message = str(error)
    except Exception:  # its __str__ is not our code
        message = "(its message cannot be shown)"
    if isinstance(error, RollyardError):
        return message
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.name} ({last.filename.rpartition('/')[2]}:{last.lineno})"
    cut = message[:MAX_SHOWN_CHARACTERS]
    return f"{what} failed: {type(error).__name__} in {where}: {cut}"


def traceback_told(error: BaseException, sentence: str) -> str:
    """The traceback of an error that is told as `sentence`, for whoever sees no more than that: of
    files it has the names alone, and of causes their kinds, as the rest may name directories,
    addresses and what else is this machine's."""
    told = traceback.TracebackException.from_exception(
        error, limit=-MAX_SHOWN_FRAMES, lookup_lines=False
    )
    causes: list[str] = []
    cause = _cause(told)
    while cause is not None:
        causes.insert(0, _frames(cause) + f"{_kind(cause)}\n")
        cause = _cause(cause)
    return _CAUSED.join([*causes, _frames(told) + f"{_kind(told)}: {sentence}\n"])


def _cause(told: traceback.TracebackException) -> traceback.TracebackException | None:
    if told.__cause__ is not None:
        return told.__cause__
    return None if told.__suppress_context__ else told.__context__


def _frames(told: traceback.TracebackException) -> str:
    lines = (
        f'  File "{frame.filename.rpartition("/")[2]}", line {frame.lineno}, in {frame.name}\n'
        for frame in told.stack
    )
    return "Traceback (most recent call last):\n" + "".join(lines)


def _kind(told: traceback.TracebackException) -> str:
    return "" if told.exc_type is None else told.exc_type.__name__
