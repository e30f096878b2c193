"""Serves openhands-aci's editor on a loopback port, to one trajectory: `edit.py DIRECTORY ROOT`.

A request is one line of JSON, the answer what the policy is to read. Once it listens, it writes its
port to the directory and goes on in the background. There it keeps the history of edits as well, so
that an edit can be undone by a helper that was started later.
"""

import json
import logging
import os
import socket
import sys
import types
from pathlib import Path

# Beside an image, the Python that runs this does not know of its environment.
sys.path += map(str, Path("/opt/rollyard/tools/editor/lib").glob("python3*/site-packages"))
logging.disable()  # the editor logs each step of its own at the level DEBUG


def _leave_out_documents() -> None:
    """Put a stand-in in the place of the editor's converter of documents, which would import pandas
    and libraries for sound."""

    class MarkdownConverter:
        def convert(self, path: str) -> None:
            raise ToolError("documents are not converted here")

    name = "openhands_aci.editor.md_converter"
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].MarkdownConverter = MarkdownConverter  # type: ignore[attr-defined]


_leave_out_documents()
from openhands_aci.editor import OHEditor, ToolError  # noqa: E402
from openhands_aci.editor.history import FileHistoryManager  # noqa: E402

_MOST_CHARACTERS = 20_000


def main(directory: Path, root: str) -> None:
    editor = OHEditor(workspace_root=root)
    editor._history_manager = FileHistoryManager(10, directory / "history")
    listener = socket.create_server(("127.0.0.1", 0))
    (directory / "port").write_text(str(listener.getsockname()[1]))
    if os.fork():
        os._exit(0)  # whoever started it goes on now
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            try:
                stream.write(answer(editor, json.loads(stream.readline())).encode())
            except (OSError, ValueError):
                continue  # the other side is gone, or is none of ours


def answer(editor: OHEditor, arguments: dict[str, object]) -> str:
    try:
        result = editor(**arguments)
    except ToolError as error:
        said = f"error: {error.message}"
    except Exception as error:  # what the policy asks for may be no text, or not permitted
        said = f"error: {type(error).__name__}: {error}"
    else:
        said = f"error: {result.error}" if result.error else result.output or ""
    # What a file holds need not be Unicode.
    return said[:_MOST_CHARACTERS].encode(errors="replace").decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
