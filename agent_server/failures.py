"""Failures of others' code, each told in one sentence."""

import traceback

from rollyard.errors import RollyardError

MAX_SHOWN_CHARACTERS = 500


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
