"""The promises of a sandbox.

- Commands of one sandbox share its files and its network, which nobody else sees; what is written
  outside `WORKSPACE` and /tmp need not last.
- A command never outlives `run`: what it left in the background is dead when `run` returns. What
  `bash` left in the background lives as long as the session.
- What the policy's commands do leads to a `CommandResult` or a `FileRefused`. `SandboxUnavailable`
  means that the machine failed, or that the server has ended the sandbox.
- Every method may be called from any thread; `close` more than once.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

import msgspec

from rollyard.errors import RollyardError, Unavailable

WORKSPACE = "/workspace"

Address = tuple[str, int]
"""Host and port of a server."""


class SandboxUnavailable(Unavailable):
    """This machine's inability to make or keep a sandbox, without which nothing runs."""


class FileRefused(RollyardError):
    """A file that cannot be read or written, because of what the sandbox's commands made of it, or
    because there is none. The message says why."""


class SandboxNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Contents that a sandbox must have for the commands that will run in it."""

    programs: tuple[str, ...] = ()
    """Names of programs on its PATH."""
    image: str = ""
    """Name of an image below the server's `--images`, whose files it shows and may change for
    itself; empty for the programs of this machine, which it may not."""
    path: tuple[str, ...] = ()
    """Directories that come first on the PATH, such as that of the image's interpreter."""
    tools: tuple[str, ...] = ()
    """Names of tool environments, each of which is at `/opt/rollyard/tools/NAME`."""
    network: tuple[str, ...] = ()
    """Hosts that it may reach by HTTPS, through a proxy; without any it has no network."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one command."""

    exit_code: int
    """Exit code as in a shell: 128 + the signal's number if a signal ended the command."""
    output: str
    """Standard output and error together, in order, cut off at the sandbox's limit."""
    timed_out: bool = False
    truncated: bool = False
    restarted: bool = False
    """True if the bash session was lost, by this command or since the last one: its directory,
    variables and background processes are gone, its files are not."""
    exceeded: str = ""
    """A sentence about the total of the sandbox that was exceeded meanwhile, for which it or a part
    of it was killed. `output` ends with it."""


class Sandbox(Protocol):
    """A sandbox as its environment sees it; a context manager that closes it."""

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        """Run `argv` to its end or to the deadline. Raises `SandboxUnavailable`.

        Any text may stand in `argv` and `stdin`; a command that cannot be started because of it,
        as with an argument of more than 128 KiB, ends with exit code 126.
        """
        ...

    def bash(self, command: str, *, deadline_seconds: float) -> CommandResult:
        """Run `command` in the sandbox's one bash session, after what it was asked before. Raises
        `SandboxUnavailable`.

        At the deadline the command is interrupted as with Ctrl-C, then killed; a session that does
        not come back even so is ended. A session that has ended is begun anew for the next command.
        """
        ...

    def write(self, path: str, content: bytes) -> None:
        """Put a file at `path`, absolute or relative to the workspace, in place of what is there;
        directories on the way are made. Raises `FileRefused` and `SandboxUnavailable`."""
        ...

    def read(self, path: str, *, most_bytes: int) -> bytes:
        """The content of the regular file at `path`, absolute or relative to the workspace, which
        no symbolic link leads to. Raises `FileRefused`, also for a file of more than `most_bytes`,
        and `SandboxUnavailable`."""
        ...

    def fresh(self) -> "Sandbox":
        """A new sandbox with the same needs, which nothing has touched. It is closed with this one.
        Raises `SandboxUnavailable`."""
        ...

    def close(self) -> None:
        """Kill what runs and remove the files; later calls raise `SandboxUnavailable`. The server
        closes the sandbox of an attempt when that is over."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OpenSandbox(Sandbox, Protocol):
    """A sandbox as the server sees it."""

    def interrupt(self) -> None:
        """Kill what runs, the bash session too, and refuse commands until `readmit`. Files can be
        read and written meanwhile. The sandboxes that `fresh` gave are interrupted alike."""
        ...

    def readmit(self) -> None:
        """Allow commands again, unless the sandbox is closed."""
        ...

    def leading_to(self, server: Address) -> AbstractContextManager[Address]:
        """Lead commands to `server`, and nowhere else, at the address that is yielded: one in the
        sandbox, which leads nowhere after the block. Raises `SandboxUnavailable`."""
        ...

    @property
    def alive(self) -> bool:
        """False once the sandbox is closed or lost, so that its calls raise
        `SandboxUnavailable`."""
        ...


class SandboxFactory(Protocol):
    def open(self, needs: SandboxNeeds) -> OpenSandbox:
        """A new sandbox with an empty workspace. Raises `SandboxUnavailable`."""
        ...


class SandboxMaker(SandboxFactory, Protocol):
    """A factory that a warm pool can stand before."""

    def make(self, needs: SandboxNeeds, siblings: SandboxFactory) -> OpenSandbox:
        """A new sandbox whose fresh ones come from `siblings`. Raises `SandboxUnavailable`."""
        ...
