"""Processes seen from outside, and which of a test's own are of hosted code.

It has others too, such as the Redis of all its tests.
"""

from contextlib import suppress

import psutil

_MODULE = "agent_server.environments.hosted.zygote"


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended. One that nobody has asked about since is a zombie, and has."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def zygotes() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if _is_zygote(each)]


def _is_zygote(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has just ended
        return _MODULE in process.cmdline()
    return False


def hosted_processes() -> list[psutil.Process]:
    """The zygotes, and everything that descends from them."""
    made = zygotes()
    return [*made, *(below for each in made for below in each.children(recursive=True))]
