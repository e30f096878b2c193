"""Patches of agents, read before anything applies them."""

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_server.environments.swe.patch import (
    FileChange,
    MalformedPatch,
    joined,
    read_patch,
)

CHANGE = b"""\
diff --git a/module.py b/module.py
index 1fd6c62..d32f681 100644
--- a/module.py
+++ b/module.py
@@ -1,2 +1,2 @@ def add
 def add(a, b):
-    return a - b
+    return a + b
"""
ADDITION = b"""\
diff --git a/a name.py b/a name.py
new file mode 100755
index 0000000..d32f681
--- /dev/null
+++ b/a name.py\t
@@ -0,0 +1 @@
+pass
\\ No newline at end of file
"""
EMPTY_FILE = b"""\
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
"""
LINK = b"""\
diff --git a/link b/link
new file mode 120000
index 0000000..ad17b0b
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+/etc/passwd
\\ No newline at end of file
"""
QUOTED = b"""\
diff --git "a/a\\"b" "b/a\\"b"
new file mode 100644
index 0000000..d32f681
--- /dev/null
+++ "b/a\\"b"
@@ -0,0 +1 @@
+pass
"""
BINARY = b"""\
diff --git a/data b/data
index 1fd6c62..d32f681 100644
Binary files a/data and b/data differ
"""


def git(repository: Path, *arguments: str) -> bytes:
    who = ["-c", "user.name=me", "-c", "user.email=me@localhost", "-c", "core.quotePath=false"]
    return subprocess.run(
        ["git", *who, "-C", str(repository), *arguments], check=True, stdout=subprocess.PIPE
    ).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    git(directory, "init", "--quiet")
    (directory / "file").write_bytes(b"first\nsecond\n")
    git(directory, "add", "file")
    git(directory, "commit", "--quiet", "--message", "base")
    return directory


def test_each_change_has_its_path_and_its_part_of_the_patch() -> None:
    patch = CHANGE + ADDITION + EMPTY_FILE
    assert read_patch(patch) == (
        FileChange("module.py", CHANGE),
        FileChange("a name.py", ADDITION),
        FileChange("empty", EMPTY_FILE),
    )
    assert joined(read_patch(patch)) == patch


def test_no_patch_has_no_changes() -> None:
    assert read_patch(b"") == ()


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (LINK, "it is no regular file"),
        (LINK.replace(b"120000", b"160000"), "it is no regular file"),
        (BINARY, "it is binary"),
        (QUOTED, "its name has special characters"),
        (CHANGE.replace(b"module.py", b"../module.py"), "its path is not one of the repository"),
        (CHANGE.replace(b"module.py", b".git/hooks/x"), "its path is not one of the repository"),
        (CHANGE.replace(b"module.py", b"a/.GIT/config"), "its path is not one of the repository"),
    ],
)
def test_what_is_no_text_file_of_the_repository_is_refused_alone(patch: bytes, reason: str) -> None:
    kept, refused = read_patch(CHANGE + patch)
    assert kept.refused == ""
    assert refused.refused == reason


@pytest.mark.parametrize(
    "patch",
    [
        b"hello\n",
        CHANGE[:-1],
        CHANGE + b"1d\n",  # a script of ed, which `patch` would run
        b"Index: other.py\n" + CHANGE,
        CHANGE.replace(b"+++ b/module.py", b"+++ b/other.py"),
        CHANGE.replace(b"--- a/module.py", b"--- /tmp/other.py"),
        CHANGE.replace(b"b/module.py\nindex", b"b/other.py\nindex"),
        QUOTED.replace(b'+++ "b/a', b'+++ "b/b'),
        QUOTED.replace(b'" "b/a', b'" "b/b'),
        CHANGE.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,3 +1,2 @@"),
        CHANGE.replace(b"@@ -1,2 +1,2 @@", b"@@ -1 +1,2 @@"),
        CHANGE.replace(b"index 1fd6c62..d32f681 100644", b"rename to other.py"),
        CHANGE.replace(b"index 1fd6c62..d32f681 100644", b"GIT binary patch"),
    ],
)
def test_a_line_that_git_would_not_write_there_refuses_the_whole(patch: bytes) -> None:
    with pytest.raises(MalformedPatch):
        read_patch(patch)


@given(st.binary(max_size=200), st.integers(0, len(CHANGE)), st.integers(0, 40))
def test_any_bytes_are_changes_or_are_malformed(noise: bytes, start: int, length: int) -> None:
    for patch in (noise, CHANGE[:start] + noise + CHANGE[start + length :]):
        with contextlib.suppress(MalformedPatch):
            assert joined(read_patch(patch)) == patch


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=60) | st.text("\r\n\\ +-@", max_size=30).map(str.encode))
def test_whatever_git_writes_about_a_file_is_read(repository: Path, content: bytes) -> None:
    (repository / "file").write_bytes(content)
    patch = git(repository, "diff", "--no-renames", "HEAD")
    assert joined(read_patch(patch)) == patch
    assert len(read_patch(patch)) == (content != b"first\nsecond\n")
