"""Free ports for processes that are about to start.

Nobody else here chooses a port between its choice and its use: each process that chooses has a
block of them to itself until it ends, and takes one after the other, so that what it chose long ago
comes last.
"""

import functools
import os
import random
import socket
from collections.abc import Iterator

from launch.ports import Ports, default_ports, is_free
from rollyard.errors import LaunchError

POOL = range(20_000, 30_000)
"""Below the system's range of ephemeral ports."""
BLOCK = 500


def free_ports(agent_servers: int, llm_servers: int) -> Ports:
    """Consecutive ports that are free now."""
    first = free_range(3 + agent_servers + llm_servers).start
    return default_ports(first, agent_servers, llm_servers)


def free_port() -> int:
    return free_range(1).start


def free_range(count: int) -> range:
    """Consecutive ports that are free now."""
    block = _block_of(os.getpid())
    for _ in range(BLOCK):
        ports = block.take(count)
        if all(is_free(port) for port in ports):
            return ports
    raise LaunchError(f"found no {count} free ports in {block.ports}")


class _Block:
    def __init__(self) -> None:
        self.ports, self._mark = _take_block()
        self._next = random.randrange(BLOCK)

    def take(self, count: int) -> range:
        """The next ports, from the beginning again when there are not enough."""
        first = self._next if self._next + count <= BLOCK else 0
        self._next = first + count
        return self.ports[first : self._next]


@functools.cache
def _block_of(pid: int) -> _Block:
    """The block of this process: a fork has another one than its parent."""
    return _Block()


def _take_block() -> tuple[range, socket.socket]:
    """A block that nobody has, and what marks it as taken as long as this process lives."""
    for first in _starts():
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0rollyard-ports-{first}")  # a name in this network namespace, as ports are
        except OSError:
            mark.close()
        else:
            return range(first, first + BLOCK), mark
    raise LaunchError(f"all {len(POOL) // BLOCK} blocks of free ports are taken by other processes")


def _starts() -> Iterator[int]:
    starts = list(POOL[::BLOCK])
    random.SystemRandom().shuffle(starts)
    yield from starts
