"""This machine's programs beside an image, in which tool environments find no Python of theirs.

A tool environment is of a Python in this machine's /usr. In the place of that, a sandbox of an
image has the image's /usr, with other libraries or none that fit. There this machine's /usr is
shown at `MACHINE`, and its own loader starts its Python with its own libraries.
"""

import sysconfig
from pathlib import Path

from agent_server.sandbox.command import PACKAGE

MACHINE = "/opt/rollyard/machine"
TOOLS = "/opt/rollyard/tools"
TOOL_PYTHON = f"{PACKAGE}/tool-python"
"""Program that runs the Python of a tool environment, its first argument, in any root."""

_USR = Path("/usr")


def tool_python() -> str:
    """The text of `TOOL_PYTHON`, a shell script."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    libraries = [f"{MACHINE}/{name}" for name in (f"lib/{triplet}", "lib64", "lib", "local/lib")]
    return f"""\
#!/bin/sh
tool={TOOLS}/$1
shift
[ -d {MACHINE} ] || exec "$tool/bin/python" "$@"
while IFS=' =' read -r key value; do
    [ "$key" != executable ] || python={MACHINE}${{value#{_USR}}}
done < "$tool/pyvenv.cfg"
exec {_loader()} --library-path {":".join(libraries)} "$python" "$@"
"""


def _loader() -> str:
    """The place of this machine's loader beside an image."""
    linked = min(_USR.glob("lib*/ld-linux-*.so.*"), default=_USR / "lib" / "ld.so")
    return MACHINE + str(linked.resolve()).removeprefix(str(_USR))
