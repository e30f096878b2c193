"""A repository at its base commit in a sandbox, what was changed in it, and changes put into it."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from agent_server.environments.protocol import EnvironmentFailed
from agent_server.sandbox.protocol import WORKSPACE, CommandResult, FileRefused, Sandbox
from rollyard.errors import Unavailable

MOST_PATCH_BYTES = 1 << 20
_SECONDS = 60.0
TRACKED = f"{WORKSPACE}/.tracked"
"""List of the files that are part of the base although the repository ignores them."""
_PATCH = f"{WORKSPACE}/.changes.patch"

# The repository's attributes would have git change the ends of lines, or take source for binary.
_ATTRIBUTES = "* !text !eol !ident !filter !working-tree-encoding !diff"
# No work: what Python and pytest leave, and the interpreter that some images have in there.
_IGNORED = ("__pycache__/", "*.py[co]", ".pytest_cache/", "*.egg-info/", "/.venv/")
_LISTED = " ".join(f"'{pattern}'" for pattern in _IGNORED)

_COMMIT = f"""
set -e
cd "$1"
git init --quiet
git symbolic-ref HEAD refs/heads/main
mkdir -p .git/info
echo '{_ATTRIBUTES}' > .git/info/attributes
printf '%s\\n' {_LISTED} > .git/info/exclude
git config user.name agent
git config user.email agent@localhost
git add --all
xargs --null --no-run-if-empty git add --force -- < "$2"
git commit --quiet --message base
rm -- "$2"
git rev-parse 'HEAD^{{tree}}'
"""

# With a git directory of its own, so that none of the agent's settings, hooks and filters is used:
# its objects alone are read, which are named by what they contain. Repositories that the agent made
# within are left out: git fails on those without a commit.
_CHANGES = f"""
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
rm -rf -- "$3"
own=$(mktemp -d)
git init --quiet --bare "$own"
printf '%s\\n' {_LISTED} > "$own/info/exclude"
printf '%s\\n' "$1/.git/objects" > "$own/objects/info/alternates"
echo '{_ATTRIBUTES}' > "$own/info/attributes"
export GIT_DIR=$own GIT_WORK_TREE=$1
cd "$1"
find . -mindepth 2 -name .git -printf '%h/\\n' | cut -c 2- >> "$own/info/exclude"
git read-tree "$2"
git add --all .
git -c core.quotePath=false diff --cached --no-renames --no-color "$2" > "$3"
rm -rf -- "$own"
"""

# `patch` takes what git refuses, such as a context that has moved.
_APPLY = """
cd "$1" && { git apply --whitespace=nowarn "$2" ||
    patch --batch --forward --fuzz 5 --strip 1 --no-backup-if-mismatch --input "$2"; }
"""


class Checkout(ABC):
    """The repository in `directory` of the sandbox, without any history."""

    def __init__(self, sandbox: Sandbox, directory: str) -> None:
        self.directory = directory
        self._sandbox = sandbox
        self._base = ""

    @property
    @abstractmethod
    def python(self) -> str:
        """Python that runs the repository's tests, and has pytest."""

    def commit(self) -> None:
        """Make it a git repository whose only commit is the base, so that no later one can be
        found."""
        done = self._must("make the repository's first commit", _COMMIT, self.directory, TRACKED)
        self._base = done.output.strip().rpartition("\n")[2]  # git may warn before

    def changes(self) -> bytes:
        """The difference from the base commit as a patch. Raises `FileRefused` if there is none to
        be had, which is the doing of whoever worked here."""
        done = self._run(_CHANGES, self.directory, self._base, _PATCH)
        if done.timed_out or done.exit_code != 0:
            raise FileRefused(f"git cannot tell what was changed: {_end(done)}")
        return self._sandbox.read(_PATCH, most_bytes=MOST_PATCH_BYTES)

    def apply(self, patch: bytes) -> str:
        """Apply the patch. Returns the reason if it does not fit, else an empty string."""
        self._sandbox.write(_PATCH, patch)
        done = self._run(_APPLY, self.directory, _PATCH)
        return "" if done.exit_code == 0 else _end(done)

    def write(self, path: str, text: str) -> None:
        self._sandbox.write(f"{self.directory}/{path}", text.encode())

    def _must(self, what: str, script: str, *arguments: str, fix: str = "") -> CommandResult:
        done = self._run(script, *arguments)
        if done.timed_out:
            raise Unavailable(f"the sandbox did not {what} within {_SECONDS:g} s")
        if done.exit_code != 0:
            raise EnvironmentFailed(f"the sandbox cannot {what}: {_end(done)}", fix=fix)
        return done

    def _run(self, script: str, *arguments: str) -> CommandResult:
        argv = ["/bin/bash", "-c", script, "checkout", *arguments]
        return self._sandbox.run(argv, deadline_seconds=_SECONDS)


CheckOut = Callable[[Sandbox], Checkout]
"""Puts a row's repository into a sandbox."""


def _end(done: CommandResult) -> str:
    if done.timed_out:
        return f"not within {_SECONDS:g} s"
    return done.output.strip()[-300:] or f"exit code {done.exit_code}"
