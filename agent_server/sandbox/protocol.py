"""The promises of a sandbox.

- Commands of one sandbox share a workspace and see no other sandbox.
- A command never outlives `run`: what it left in the background is dead when `run` returns.
- `close` may be called from any thread, at any time, more than once.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rollyard.errors import Unavailable


class SandboxUnavailable(Unavailable):
    """This machine's inability to make a sandbox, without which nothing runs."""


class SandboxNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Contents that a sandbox must have for the commands that will run in it."""

    programs: tuple[str, ...] = ()
    """Names of programs on its PATH."""
    image: str = ""
    """Container image with its files; empty for the files of this machine. No sandbox can be made
    from an image yet: a server with an environment that needs one does not start."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one command."""

    exit_code: int
    """Exit code as in a shell: 128 + the signal's number if a signal ended the command."""
    output: str
    """Standard output and error together, in order, cut off at the sandbox's limit."""
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
