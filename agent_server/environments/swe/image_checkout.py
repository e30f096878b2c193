"""The repository that a container image comes with, as those of the public datasets do.

- It is in /testbed, as its image was made: built, installed, and at the row's base commit.
- Its history has the fix, and images of R2E-Gym have the tests. Neither is left in the sandbox: not
  for the agent, and not for the code under test either.
"""

from agent_server.environments.swe.checkout import TRACKED, Checkout
from agent_server.environments.swe.inside import source
from agent_server.sandbox.protocol import Sandbox

DIRECTORY = "/testbed"
INTERPRETERS = (f"{DIRECTORY}/.venv/bin", "/opt/miniconda3/envs/testbed/bin")
"""Directories of the Python with the repository's packages: R2E-Gym's, and SWE-bench's."""

_HIDDEN = tuple(
    f"{place}/{name}"
    for place in (DIRECTORY, "", "/root")
    for name in ("r2e_tests", "run_tests.sh")
)
"""Where R2E-Gym has the tests that the agent is not to see."""

# Directories stay where they are made anew: over one that was removed, overlays of kernels before
# 6.6 can make none. A repository within, such as a submodule, becomes part of this one.
_CLEAR = """
set -e
cd "$1"
git ls-files --cached --ignored --exclude-standard -z > "$2" 2> /dev/null || true
shift 2
history=$(git rev-parse --git-common-dir 2> /dev/null || echo .git)
for each in "$history" .git "$@"; do
    if [ -e "$each" ] || [ -L "$each" ]; then find "$each" -not -type d -delete; fi
done
find . -mindepth 2 -name .git -prune -exec rm -rf -- {} +
"""

_FIND_PYTHON = """
python=$(command -v python3) || { echo "there is no python3 on $PATH"; exit 1; }
"$python" -I -S -c "$1" && echo "$python"
"""


class ImageCheckout(Checkout):
    """Files that the repository ignores and does not track are what was built of it, so that they
    are no part of what an agent changes."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox, DIRECTORY)
        self._must(
            "clear the image's repository",
            _CLEAR,
            DIRECTORY,
            TRACKED,
            *_HIDDEN,
            fix="unpack the image so that sandboxes may change it (docs/sandboxes.md)",
        )
        found = self._must(
            "run pytest in the image",
            _FIND_PYTHON,
            source("find_pytest.py"),
            fix=f"use an image that has it in one of {', '.join(INTERPRETERS)}",
        )
        self._python = found.output.strip().rpartition("\n")[2]

    @property
    def python(self) -> str:
        return self._python
