"""How failures are told to those who see no more of this machine than a Result."""

from agent_server.failures import traceback_told
from rollyard.errors import Unavailable


def _look_up() -> None:
    try:
        raise KeyError("token of /srv/secrets")
    except KeyError as error:
        raise Unavailable("the judge is away") from error


def test_a_traceback_names_files_functions_and_kinds_and_nothing_of_the_machine() -> None:
    try:
        _look_up()
    except Unavailable as error:
        told = traceback_told(error, "the judge is away")
    cause, found = told.split("\nThe above exception was the direct cause")
    assert cause.splitlines()[0] == found.splitlines()[2] == "Traceback (most recent call last):"
    assert 'File "test_failures.py", line' in cause
    assert cause.endswith("in _look_up\nKeyError\n")
    assert found.endswith("Unavailable: the judge is away\n")
    assert "srv" not in told
    assert "tests" not in told
