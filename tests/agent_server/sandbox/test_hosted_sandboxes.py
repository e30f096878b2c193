"""Sandboxes as environments of other packages see them: through frames, with real ones behind."""

import socket
import threading
from collections.abc import Iterator

import pytest

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.remote_sandbox import RemoteSandbox, ServerLine
from agent_server.environments.hosted.sandboxes import Sandboxes
from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import EnvironmentFailed
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import (
    FileRefused,
    Sandbox,
    SandboxNeeds,
    SandboxUnavailable,
)

SECONDS = 20.0


@pytest.fixture
def own(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds()) as opened:
        yield opened


@pytest.fixture
def remote(own: Sandbox) -> Iterator[RemoteSandbox]:
    ours, theirs = socket.socketpair()
    known = Sandboxes(own)

    def serve() -> None:
        while (request := frames.receive(ours)) is not None:
            assert isinstance(request, frames.SandboxRequest)
            frames.send(ours, known.answer(request))

    thread = threading.Thread(target=serve)
    thread.start()
    yield RemoteSandbox(ServerLine(theirs), 0)
    theirs.close()
    thread.join(SECONDS)
    ours.close()


def test_commands_and_files_go_to_the_sandbox_and_back(remote: RemoteSandbox) -> None:
    remote.write("a/note", b"\x00\xff" * 1000)
    assert remote.read("a/note", most_bytes=2000) == b"\x00\xff" * 1000
    assert (
        remote.run(["/usr/bin/wc", "-c"], stdin="\ud800", deadline_seconds=SECONDS).output == "3\n"
    )
    remote.bash("cd a; here=still", deadline_seconds=SECONDS)
    assert (
        remote.bash("pwd; echo $here", deadline_seconds=SECONDS).output == "/workspace/a\nstill\n"
    )
    assert remote.bash("exit 3", deadline_seconds=SECONDS).restarted


@pytest.mark.parametrize("path", ["missing", "/usr", "a\0b", "\ud800\n"])
def test_a_refusal_is_one_there_too(remote: RemoteSandbox, path: str) -> None:
    with pytest.raises(FileRefused, match=r"cannot be (read|used)"):
        remote.read(path, most_bytes=10)
    with pytest.raises(FileRefused):
        remote.write("/usr/new", b"")


def test_a_file_that_no_frame_holds_is_refused(remote: RemoteSandbox) -> None:
    with pytest.raises(FileRefused, match="more than"):
        remote.write("big", bytes(frames.MAX_FRAME_BYTES + 1))
    remote.run(["/usr/bin/truncate", "-s", "64M", "big"], deadline_seconds=SECONDS)
    with pytest.raises(FileRefused, match="more than"):
        remote.read("big", most_bytes=frames.MAX_FRAME_BYTES * 2)


def test_fresh_sandboxes_go_by_number_and_are_closed_alone(remote: RemoteSandbox) -> None:
    remote.write("note", b"secret")
    with remote.fresh() as clean, clean.fresh() as cleaner:
        for other in (clean, cleaner):
            with pytest.raises(FileRefused, match="no such file"):
                other.read("note", most_bytes=10)
    with pytest.raises(SandboxUnavailable, match="closed"):
        clean.read("note", most_bytes=10)
    remote.close()
    assert remote.read("note", most_bytes=10) == b"secret"


def test_an_environment_that_asked_for_no_sandbox_is_told_so_for_every_call() -> None:
    nothing = NoSandbox()
    for call in (
        lambda: nothing.run(["/bin/true"], deadline_seconds=1),
        lambda: nothing.bash("true", deadline_seconds=1),
        lambda: nothing.write("note", b""),
        lambda: nothing.read("note", most_bytes=1),
        nothing.fresh,
    ):
        with pytest.raises(EnvironmentFailed, match="says that it needs no sandbox"):
            call()
