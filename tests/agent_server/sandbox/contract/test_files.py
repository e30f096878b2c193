"""Files of a sandbox, from outside: its commands can neither lead us out of it nor make us wait."""

import contextlib
import threading
from pathlib import Path

import pytest

from agent_server.sandbox.protocol import FileRefused, OpenSandbox

SECONDS = 20.0


def sh(sandbox: OpenSandbox, script: str) -> str:
    return sandbox.run(["/bin/bash", "-c", script], deadline_seconds=SECONDS).output


@pytest.mark.parametrize(
    "path", ["note", "a/b/note", "/workspace/note", "/tmp/a/note", "./n\n o'te"]
)
def test_what_is_written_is_read_inside_and_outside(sandbox: OpenSandbox, path: str) -> None:
    content = bytes(range(256)) * 1000
    sandbox.write(path, content)
    assert sandbox.read(path, most_bytes=len(content)) == content
    seen = sandbox.run(["/usr/bin/md5sum"], stdin="", deadline_seconds=SECONDS)
    assert seen.exit_code == 0
    count = sandbox.run(["/usr/bin/wc", "-c", path], deadline_seconds=SECONDS)
    assert count.output.split()[0] == str(len(content))


def test_commands_may_change_what_was_written(sandbox: OpenSandbox) -> None:
    sandbox.write("a/b/note", b"one")
    sh(sandbox, "printf two > a/b/note; mv a/b a/c")
    assert sandbox.read("a/c/note", most_bytes=3) == b"two"


def test_a_file_takes_the_place_of_what_is_there(sandbox: OpenSandbox) -> None:
    sh(sandbox, "echo long before > file; ln -s /usr/bin/env link; mkfifo pipe")
    for path in ("file", "link", "pipe"):
        sandbox.write(path, b"new")
        assert sandbox.read(path, most_bytes=3) == b"new"


REFUSED = {
    "nothing": ("", "nothing", "no such file"),
    "a missing directory": ("", "no/thing", "no such file"),
    "a link": ("ln -s /usr/bin/env link", "link", "symbolic link"),
    "a link on the way": ("ln -s /usr/bin way", "way/env", "symbolic link"),
    "a link to itself": ("ln -s loop loop", "loop", "symbolic link"),
    "a directory": ("mkdir directory", "directory", "it is a directory"),
    "a pipe": ("mkfifo pipe", "pipe", "no regular file"),
    "a pipe with a writer": ("mkfifo pipe; (echo > pipe) & exit", "pipe", "no regular file"),
    "a socket": ("python3 -c 'import socket; socket.socket(1).bind(\"door\")'", "door", "door"),
    "a file too large": ("head -c 1001 /dev/zero > big", "big", "more than 1000 bytes"),
    "a file with a hole": ("truncate -s 60M sparse", "sparse", "more than 1000 bytes"),
    "a file without rights": ("echo > closed; chmod 000 closed", "closed", "Permission denied"),
    "a parent": ("", "../etc/hostname", "plain path"),
    "the workspace": ("", "/workspace", "it is a directory"),
    "a NUL": ("", "a\0b", "plain path"),
    "text that is not Unicode": ("", "\ud800", "cannot be read"),
    "a name too long": ("", "x" * 300, "too long"),
}


@pytest.mark.parametrize(("script", "path", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_but_a_regular_file_is_refused(
    sandbox: OpenSandbox, script: str, path: str, reason: str
) -> None:
    sh(sandbox, script)
    with pytest.raises(FileRefused, match=reason):
        sandbox.read(path, most_bytes=1000)


@pytest.mark.parametrize(
    "path", ["/usr/bin/env", "/new", "/proc/1/comm", "/workspace", "/", "a/.."]
)
def test_what_may_not_be_written_is_refused(sandbox: OpenSandbox, path: str) -> None:
    with pytest.raises(FileRefused):
        sandbox.write(path, b"x")


def test_a_path_that_is_swapped_for_links_meanwhile_never_leads_elsewhere(
    sandbox: OpenSandbox,
) -> None:
    swap = "mkdir -p real; printf own > real/env; ln -s /usr/bin link; echo ready\n"
    swap += "while :; do mv -T real way; mv -T way real; mv -T link way; mv -T way link; done"
    sandbox.bash(f"mkfifo door; bash -c '{swap}' > door & read < door", deadline_seconds=SECONDS)
    for _ in range(300):
        with contextlib.suppress(FileRefused):
            assert sandbox.read("way/env", most_bytes=100) == b"own"
        with contextlib.suppress(FileRefused):
            sandbox.write("way/new", b"x")
    assert not Path("/usr/bin/new").exists()


def test_files_are_read_and_written_from_many_threads(sandbox: OpenSandbox) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                sandbox.write(f"{number}/{step}", f"{number} {step}".encode())
                assert (
                    sandbox.read(f"{number}/{step}", most_bytes=20) == f"{number} {step}".encode()
                )
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not failed
