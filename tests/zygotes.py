"""The processes of hosted code that a test's own process has started.

It has others too, such as the Redis of all its tests.
"""

import psutil

_MODULE = "agent_server.environments.hosted.zygote"


def zygotes() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if _MODULE in each.cmdline()]


def hosted_processes() -> list[psutil.Process]:
    """The zygotes, and everything that descends from them."""
    made = zygotes()
    return [*made, *(below for each in made for below in each.children(recursive=True))]
