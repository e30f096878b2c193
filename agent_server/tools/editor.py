"""The editor of openhands-aci, inside the sandbox: a resident helper, one for each trajectory.

- The helper runs in the background of the sandbox's bash session, and is begun anew if the policy
  has ended it; what was edited before can still be undone.
- Whatever the policy does to the helper, it does to what itself gets to read.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent_server.sandbox.machine import TOOL_PYTHON
from agent_server.sandbox.protocol import WORKSPACE, FileRefused, Sandbox
from agent_server.tools.protocol import ToolError
from rollyard.messages import ToolSchema

_HOME = "/tmp/.editor"  # noqa: S108 - the sandbox's own
_HELPER = Path(__file__).parent / "inside" / "edit.py"
_START = f"{TOOL_PYTHON} editor -I {_HOME}/edit.py {_HOME} {WORKSPACE}"
_ASK = f"exec 3<>/dev/tcp/127.0.0.1/$(< {_HOME}/port) && cat >&3 && exec cat <&3"
_SECONDS = 30.0
_TRIES = 2
_LOST = "The bash session was lost: its directory, variables and background processes are gone.\n"

_DESCRIPTION = """\
View, create and edit text files. Paths are absolute.
- view: a file with line numbers, or the files in a directory; `view_range` gives [first, last] line
- create: a file with `file_text`; it must not exist yet, its directory must
- str_replace: put `new_str` in the place of `old_str`, which must be in the file exactly once
- insert: put `new_str` behind the line `insert_line`; 0 is the beginning of the file
- undo_edit: take the last edit of the file back"""

_PARAMETERS = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "enum": ["view", "create", "str_replace", "insert", "undo_edit"],
        },
        "path": {"type": "string", "description": "absolute path of a file or directory"},
        "file_text": {"type": "string"},
        "old_str": {"type": "string"},
        "new_str": {"type": "string"},
        "insert_line": {"type": "integer"},
        "view_range": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["command", "path"],
}


class Editor:
    """A `Tool`, for one sandbox that has the tool environment `editor`."""

    schema = ToolSchema("str_replace_editor", _DESCRIPTION, _PARAMETERS)

    def __init__(self) -> None:
        self._runs = False

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        request = json.dumps(arguments) + "\n"
        said = ""
        for _ in range(_TRIES):
            if not self._runs:
                said = self._start(sandbox)
            done = sandbox.run(["/bin/bash", "-c", _ASK], stdin=request, deadline_seconds=_SECONDS)
            self._runs = done.exit_code == 0 and not done.timed_out
            if self._runs and done.output:
                return said + done.output
            self._runs = False
        raise ToolError("the editor does not answer; work with other tools")

    def _start(self, sandbox: Sandbox) -> str:
        """Start the helper. Returns what the policy must know about its session."""
        try:
            sandbox.write(f"{_HOME}/edit.py", _source())
        except FileRefused as error:
            raise ToolError(f"the editor cannot start: {error}") from error
        begun = sandbox.bash(_START, deadline_seconds=_SECONDS)
        if begun.exit_code != 0:
            raise ToolError(f"the editor cannot start: {begun.output[-300:]}")
        return _LOST if begun.restarted else ""


@cache
def _source() -> bytes:
    return _HELPER.read_bytes()
