"""A small project with a bug, and an agent that leaves something in it."""

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_server.environments.in_thread import InThread
from agent_server.environments.swe.environment import Swe
from agent_server.repositories import Repositories
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import Grade, Prompt

CODE = """\
def add(a, b):
    return a - b


def multiply(a, b):
    return a * b
"""
FIXED = CODE.replace("a - b", "a + b")
_TESTS = """\
import unittest

from adding import add, multiply


def test_multiply():
    assert multiply(2, 3) == 6
"""
_TEST_PATCH = """\
diff --git a/tests/test_adding.py b/tests/test_adding.py
--- a/tests/test_adding.py
+++ b/tests/test_adding.py
@@ -6,2 +6,7 @@
 def test_multiply():
     assert multiply(2, 3) == 6
+
+
+class TestAdd(unittest.TestCase):
+    def test_add(self):
+        self.assertEqual(add(2, 3), int(open("expected.txt").read()))
diff --git a/expected.txt b/expected.txt
new file mode 100644
--- /dev/null
+++ b/expected.txt
@@ -0,0 +1 @@
+5
"""
_PATCH = """\
diff --git a/adding.py b/adding.py
--- a/adding.py
+++ b/adding.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
ROW: dict[str, Any] = {
    "data_source": "swe",
    "instance_id": "me__adding-1",
    "repo": "me/adding",
    "base_commit": "1.0",
    "version": "1.0",
    "problem_statement": "add(2, 3) is -1.",
    "patch": _PATCH,
    "test_patch": _TEST_PATCH,
    "FAIL_TO_PASS": ["tests/test_adding.py::TestAdd::test_add"],
    "PASS_TO_PASS": ["tests/test_adding.py::test_multiply"],
}


def make_repositories(directory: Path, others: Mapping[str, str] | None = None) -> Repositories:
    """Repositories with the release 1.0 of the project, and `others` among its files."""
    release = directory / "me__adding" / "1.0.tar.gz"
    release.parent.mkdir(parents=True)
    files = {"adding.py": CODE, "tests/test_adding.py": _TESTS, "data.bin": "\0", **(others or {})}
    with tarfile.open(release, "w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"adding-1.0/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return Repositories(directory)


def make_git_repository(directory: Path) -> Repositories:
    """The same project in a git repository of two commits."""
    archive = make_repositories(directory / "releases").archive("me/adding", "1.0")
    with tarfile.open(fileobj=io.BytesIO(archive)) as release:
        release.extractall(directory, filter="data")
    (directory / "adding-1.0").rename(directory / "me__adding")
    commit = "commit --quiet --allow-empty --message"
    for command in ("init --quiet", "add --all", f"{commit} base", f"{commit} later"):
        who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
        git = ["git", *who, "-C", str(directory / "me__adding")]
        subprocess.run([*git, *command.split()], check=True)
    return Repositories(directory)


def begun(
    row: Mapping[str, Any], repositories: Repositories, sandbox: Sandbox
) -> tuple[InThread, str]:
    """An episode of the row, and what the policy is asked."""
    episode = InThread(Swe, repositories=repositories)
    prompt = Prompt(prompt_id=row["instance_id"], instance=dict(row))
    (question,) = episode.start(prompt, sandbox).messages
    return episode, question.content


def left(
    repositories: Repositories, sandbox: Sandbox, files: Mapping[str, str], command: str = "true"
) -> Grade:
    """The grade of an agent that writes these files into the project, then runs a command there."""
    episode, _ = begun(ROW, repositories, sandbox)
    for path, text in files.items():
        sandbox.write(f"/workspace/adding/{path}", text.encode())
    done = sandbox.run(["/bin/bash", "-c", f"cd adding && {command}"], deadline_seconds=20)
    assert done.exit_code == 0, done.output
    return episode.grade()
