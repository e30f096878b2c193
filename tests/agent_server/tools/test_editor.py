"""The editor of openhands-aci, in a real sandbox."""

from collections.abc import Iterator
from typing import Any

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from agent_server.tools.arguments import check_arguments
from agent_server.tools.editor import Editor
from agent_server.tools.protocol import ToolError

FILE = "/workspace/file.py"


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds(tools=("editor",))) as opened:
        yield opened


class Edits:
    """An editor, and what it says to the policy."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._editor = Editor()
        self._sandbox = sandbox

    def __call__(self, command: str, path: str = FILE, **more: Any) -> str:
        arguments = {"command": command, "path": path, **more}
        check_arguments(arguments, self._editor.schema)
        return self._editor.call(arguments, self._sandbox)


@pytest.fixture
def edit(sandbox: Sandbox) -> Edits:
    return Edits(sandbox)


@pytest.fixture(scope="module")
def of_two_lines(sandboxes: Bubblewrap) -> Iterator[Edits]:
    """An editor beside a file of two lines."""
    with sandboxes.open(SandboxNeeds(tools=("editor",))) as opened:
        opened.write(FILE, b"one\ntwo\n")
        opened.write("/workspace/paper.pdf", b"%PDF-1.7")
        opened.write("/workspace/inner/other.py", b"")
        yield Edits(opened)


def content(sandbox: Sandbox, path: str = FILE) -> str:
    return sandbox.read(path, most_bytes=1 << 20).decode()


def test_a_file_is_created_edited_viewed_and_restored(edit: Edits, sandbox: Sandbox) -> None:
    assert "created" in edit("create", file_text="one\ntwo\n")
    assert "2\ttwo!" in edit("str_replace", old_str="two", new_str="two!")
    edit("insert", insert_line=0, new_str="zero")
    assert content(sandbox) == "zero\none\ntwo!\n"
    assert "one" in edit("view", view_range=[2, 2])
    assert "zero" not in edit("view", view_range=[2, 2])
    edit("undo_edit")
    assert content(sandbox) == "one\ntwo!\n"
    edit("undo_edit")
    assert content(sandbox) == "one\ntwo\n"


def test_a_directory_is_listed(of_two_lines: Edits) -> None:
    assert "/workspace/inner/other.py" in of_two_lines("view", path="/workspace")


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("view", {"path": "file.py"}, "absolute path"),
        ("view", {"path": "/workspace/none"}, "does not exist"),
        ("view", {"view_range": [7, 9]}, "view_range"),
        ("create", {"file_text": ""}, "already exists"),
        ("create", {"path": "/usr/file", "file_text": ""}, "error: "),
        ("str_replace", {"old_str": "three", "new_str": ""}, "did not appear"),
        ("str_replace", {"old_str": "o", "new_str": ""}, "Multiple occurrences"),
        ("insert", {"new_str": "x"}, "insert_line"),
        ("create", {"path": "/workspace/new", "file_text": "\ud800"}, "surrogates"),
        ("view", {"path": "/workspace/\0"}, "error: "),
        ("view", {"path": "/workspace/paper.pdf"}, "documents are not converted"),
    ],
)
def test_a_mistake_is_told_to_the_policy(
    of_two_lines: Edits, command: str, more: dict[str, Any], said: str
) -> None:
    answer = of_two_lines(command, **more)
    assert answer.startswith("error: ")
    assert said in answer


def test_no_answer_is_longer_than_a_policy_can_read(edit: Edits, sandbox: Sandbox) -> None:
    sandbox.write(FILE, b"a long line\n" * 100_000)
    assert len(edit("view")) <= 20_000
    assert len(edit("str_replace", old_str="x" * 100_000, new_str="")) <= 20_000


def test_edits_can_be_undone_after_the_helper_was_killed(edit: Edits, sandbox: Sandbox) -> None:
    edit("create", file_text="one\n")
    edit("str_replace", old_str="one", new_str="two")
    sandbox.bash("kill -9 $(pgrep -f edit.py)", deadline_seconds=10)
    edit("undo_edit")
    assert content(sandbox) == "one\n"


def test_a_policy_that_has_lost_its_session_can_edit_on(edit: Edits, sandbox: Sandbox) -> None:
    edit("create", file_text="one\n")
    assert sandbox.bash("exit", deadline_seconds=10).restarted
    assert "one" in edit("view")


def test_a_policy_that_breaks_the_editor_is_told_so(edit: Edits, sandbox: Sandbox) -> None:
    sandbox.bash("mkdir -p /tmp/.editor/port && chmod 500 /tmp/.editor", deadline_seconds=10)
    with pytest.raises(ToolError, match="the editor"):
        edit("view", "/workspace")
