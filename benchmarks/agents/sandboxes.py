"""The time until a sandbox is there, and what its bash session adds to a command."""

import time
from collections.abc import Callable, Iterator

import msgspec

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import SandboxFactory, SandboxNeeds
from agent_server.sandbox.settings import SandboxSettings
from agent_server.sandbox.warm_pool import WarmPool
from rollyard.errors import LaunchError

NEEDS = SandboxNeeds(programs=("bash",))
POOL_SIZE = 8
_WAIT_SECONDS = 30.0
_COMMAND_SECONDS = 10.0


class SandboxTimes(msgspec.Struct, frozen=True):
    """Milliseconds of each sample."""

    cold: list[float]
    """Making a sandbox."""
    cold_with_command: list[float]
    """Making a sandbox, and the first command in its bash session."""
    pooled: list[float]
    pooled_with_command: list[float]
    bash: list[float]
    """A command of the session that does nothing."""
    run: list[float]
    """A program that does nothing, in a process table of its own."""
    closing: list[float]


def measure(starts: int, commands: int) -> SandboxTimes:
    """Start so many sandboxes of each way, and run so many commands in one of them."""
    maker = Bubblewrap(SandboxSettings())
    pool = WarmPool(maker, POOL_SIZE)
    try:
        cold = [_start(maker) for _ in range(starts)]
        pool.open(NEEDS).close()
        pooled = [_start(pool) for _ in _filled(pool, starts)]
        with maker.open(NEEDS) as sandbox:
            bash = [
                _milliseconds(lambda: sandbox.bash(":", deadline_seconds=_COMMAND_SECONDS))
                for _ in range(commands)
            ]
            run = [
                _milliseconds(lambda: sandbox.run(["/bin/true"], deadline_seconds=_COMMAND_SECONDS))
                for _ in range(starts)
            ]
    finally:
        pool.close()
        maker.close()
    return SandboxTimes(
        cold=[each[0] for each in cold],
        cold_with_command=[each[1] for each in cold],
        pooled=[each[0] for each in pooled],
        pooled_with_command=[each[1] for each in pooled],
        bash=bash[1:],  # the first begins the session
        run=run,
        closing=[each[2] for each in (*cold, *pooled)],
    )


def summary(times: SandboxTimes) -> dict[str, dict[str, float]]:
    return {
        name: {
            f"p{round(share * 100)}": round(percentile(getattr(times, name), share), 3)
            for share in (0.5, 0.9, 0.99)
        }
        for name in SandboxTimes.__struct_fields__
    }


def percentile(samples: list[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


def _filled(pool: WarmPool, count: int) -> Iterator[int]:
    """Count, each time once the pool is full."""
    for number in range(count):
        deadline = time.monotonic() + _WAIT_SECONDS
        while pool.ready < POOL_SIZE:
            if time.monotonic() > deadline:
                raise LaunchError("the warm pool does not fill")
            time.sleep(0.001)
        yield number


def _start(factory: SandboxFactory) -> tuple[float, float, float]:
    """Milliseconds until a sandbox is there, until it has run a command, and to close it."""
    began = time.perf_counter()
    sandbox = factory.open(NEEDS)
    there = time.perf_counter()
    sandbox.bash(":", deadline_seconds=_COMMAND_SECONDS)
    ran = time.perf_counter()
    sandbox.close()
    closed = time.perf_counter()
    return (there - began) * 1e3, (ran - began) * 1e3, (closed - ran) * 1e3


def _milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3
