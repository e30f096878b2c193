"""The rights over files that a thread takes on while it reads and writes in a sandbox."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.command import NOBODY
from agent_server.sandbox.files import files_of
from agent_server.sandbox.protocol import FileRefused, SandboxNeeds


def user_for_files() -> int:
    """User whose rights over files this thread has."""
    status = Path("/proc/thread-self/status").read_text()
    return int(status.partition("Uid:")[2].split()[3])


@pytest.mark.parametrize("error", [FileRefused("no"), KeyError("a bug")])
def test_they_are_given_back_whatever_happens(error: Exception) -> None:
    user, had = NOBODY if os.geteuid() == 0 else os.geteuid(), []
    with contextlib.suppress(type(error)), files_of(user):
        had.append(user_for_files())
        raise error
    assert had == [user]
    assert user_for_files() == os.geteuid()


def test_other_threads_keep_theirs() -> None:
    seen: list[int] = []
    begun, done = threading.Event(), threading.Event()

    def look() -> None:
        begun.set()
        assert done.wait(10)
        seen.append(user_for_files())

    other = threading.Thread(target=look)
    other.start()
    assert begun.wait(10)
    with files_of(NOBODY if os.geteuid() == 0 else os.geteuid()):
        done.set()
        other.join(10)
    assert seen == [os.geteuid()]


def test_a_file_of_the_sandbox_belongs_to_its_user(sandboxes: Bubblewrap) -> None:
    with sandboxes.open(SandboxNeeds()) as sandbox:
        sandbox.write("a/note", b"x")
        owned = sandbox.run(["/usr/bin/stat", "-c", "%u", "a", "a/note"], deadline_seconds=10)
        assert owned.output == f"{NOBODY}\n{NOBODY}\n"
