"""Remove each guard once: the tests must fail each time.

Works on a copy of this tree, whose tests must pass as it is. The last line of stdout is one JSON
object.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rollyard.errors import LaunchError, RollyardError
from tests.guards.catalogue import GUARDS
from tests.guards.guard import Guard

TESTS_SECONDS = 300.0
SOME_FAILED = 1
"""What pytest returns when tests ran and some failed; anything else kills no mutant."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.guards", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="only guards whose name contains this")
    flags = parser.parse_args()
    chosen = [guard for guard in GUARDS if flags.name in guard.name]
    if not chosen:
        parser.error("no guard has a name like this")
    try:
        survivors = hunt(chosen)
    except RollyardError as error:
        print(f"mutants: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    killed = len(chosen) - len(survivors)
    print(json.dumps({"mutants": len(chosen), "killed": killed, "survivors": survivors}))
    raise SystemExit(1 if survivors else 0)


def hunt(guards: Sequence[Guard]) -> list[str]:
    """The names of the guards whose removal no test notices."""
    survivors = []
    with tempfile.TemporaryDirectory(prefix="rollyard-mutants-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        check_that_tests_pass(tree, guards)
        for guard in guards:
            began = time.monotonic()
            is_killed = kills(tree, guard)
            seconds = time.monotonic() - began
            print(f"{'killed' if is_killed else 'SURVIVES':9}{seconds:5.1f} s  {guard.name}")
            sys.stdout.flush()
            if not is_killed:
                survivors.append(guard.name)
    return survivors


def copy_tree(tree: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = Path(name)
        (tree / source).parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            (tree / source).symlink_to(source.readlink())
        elif source.is_file():
            (tree / source).write_bytes(source.read_bytes())
    (tree / ".venv-tools").symlink_to(Path(".venv-tools").resolve())  # ignored by git, and needed


def check_that_tests_pass(tree: Path, guards: Sequence[Guard]) -> None:
    """Tests that fail with every guard in place would kill every mutant."""
    for tests in sorted({guard.tests for guard in guards}):
        if run_tests(tree, tests) != 0:
            raise LaunchError(
                f"{tests} fails with every guard in place",
                fix=f"run .venv/bin/python -m pytest {tests}",
            )


def kills(tree: Path, guard: Guard) -> bool:
    """Whether the guard's tests fail without it."""
    file = tree / guard.file
    whole = file.read_text()
    if whole.count(guard.text) != 1:
        raise LaunchError(
            f"{guard.file} has {whole.count(guard.text)} times what guards {guard.name!r}",
            fix="write down in tests/guards/guards_of_*.py what removes the guard now",
        )
    file.write_text(whole.replace(guard.text, guard.without))
    try:
        return run_tests(tree, guard.tests) == SOME_FAILED
    finally:
        file.write_text(whole)


def run_tests(tree: Path, tests: str) -> int:
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=unshrunk"]
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests.split()],
            cwd=tree,
            env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TESTS_SECONDS,
        ).returncode
    except subprocess.TimeoutExpired:
        return SOME_FAILED  # a wait that never ends is noticed, too


if __name__ == "__main__":
    main()
