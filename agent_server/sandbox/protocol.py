"""What a sandbox promises.

- Commands of one sandbox share a workspace and see no other sandbox.
- A command never outlives `run`: what it left in the background is dead when `run` returns.
- `close` may be called from any thread, at any time, more than once.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rollyard.errors import Unavailable


class SandboxUnavailable(Unavailable):
    """This machine cannot make a sandbox. Nothing runs without one."""


class SandboxNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What must be in a sandbox for the commands that will run there."""

    programs: tuple[str, ...] = ()
    """Found on its PATH by these names."""
    image: str = ""
    """The container image that has its files; empty: those of this machine."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one command."""

    exit_code: int
    """As a shell counts: 128 + the signal's number when a signal ended it."""
    output: str
    """Standard output and error together, in order, cut off at the sandbox's cap."""
    timed_out: bool = False
    truncated: bool = False


class Sandbox(Protocol):
    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        """Run `argv` to its end or to the deadline. Raises `SandboxUnavailable`.

        Any text may stand in `argv` and `stdin`; a command that cannot be started because of it,
        as with an argument of more than 128 KiB, ends with exit code 126.
        """
        ...

    def close(self) -> None:
        """Kill what runs and remove the workspace; a later `run` raises `SandboxUnavailable`."""
        ...


class SandboxFactory(Protocol):
    def open(self) -> Sandbox:
        """A new sandbox with an empty workspace. Raises `SandboxUnavailable`."""
        ...
