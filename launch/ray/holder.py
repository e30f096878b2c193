"""What holds `rollyard node` on one machine, within a worker of Ray.

The node stops when its input ends: however this process ends, nothing of the node outlives it for
long.
"""

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

from launch.fleet_files import take_over
from launch.processes import Started, how_it_ended, module_command, start_process

STOP_SECONDS = 45.0
"""Time for a node to stop: its levels one after the other, in 10 s at most."""
NODE_LOG = "node.log"


class NodeHolder:
    """Owns the process of one node. `stop` may be called while `run` waits."""

    def __init__(self, name: str, directory: str) -> None:
        self._name = name
        self._directory = Path(directory)
        self._node: Started | None = None

    def is_here(self) -> bool:
        """Answer."""
        return True

    def run(self, files: Mapping[str, str]) -> str:
        """Start the node, which has its plan and secrets in `files`, and wait for its end. Returns
        how it ended."""
        take_over(files, self._directory)
        words = ("--directory", str(self._directory), "--name", self._name, "--until-input-ends")
        self._node = start_process(
            self._name,
            module_command("launch.cli", "node", *words),
            self._directory / "nodes" / self._name / NODE_LOG,
            piped=True,
        )
        self._node.process.wait()
        return how_it_ended(self._node)

    def stop(self) -> None:
        """Let the node end in its order, and kill what is left of it then."""
        if self._node is None:
            return
        assert self._node.process.stdin is not None
        self._node.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._node.process.wait(STOP_SECONDS)
        self._node.kill()
