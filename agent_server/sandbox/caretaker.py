"""A process that outlives a server that is killed, and removes what its sandboxes left.

It is a shell that waits for its input to end, which it does with the server, and costs 1 MB
meanwhile. Where it was not dismissed before, it becomes a Python that reaps the home it is in.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.removal import reap

_WAIT = 'read -r dismissed && exit; exec "$@"'
_DISMISS_SECONDS = 2.0


class Caretaker:
    """Owns the process."""

    def __init__(self, home: Path) -> None:
        """Raises `SandboxUnavailable`."""
        reaper = [sys.executable, "-P", "-m", __name__]
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT, "caretaker", *reaper],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=home,
                env={"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
                start_new_session=True,  # a signal to the server's group is not for it
            )
        except OSError as error:
            raise SandboxUnavailable(f"cannot start a caretaker: {error}") from error

    def dismiss(self) -> None:
        """End the process: there is nothing to remove."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(b"dismissed\n", timeout=_DISMISS_SECONDS)


if __name__ == "__main__":
    reap(Path.cwd())
