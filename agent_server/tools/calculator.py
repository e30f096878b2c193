"""A calculator for whole numbers: bash arithmetic on what the policy wrote, in its sandbox.

Bash arithmetic can run commands (`a[$(...)]`). The sandbox contains them, so that nothing here
filters the expression; a filter would only look like safety.
"""

import re

from agent_server.sandbox.protocol import Sandbox

DEADLINE_SECONDS = 5.0

_NUMBER = re.compile(r"-?[0-9]{1,20}")
# On standard input: an argument has a largest length, and what the policy writes has none.
_SCRIPT = r"""printf '%s\n' "$(( $(cat) ))" 2>&1"""


def calculate(expression: str, sandbox: Sandbox) -> str:
    """The value of `expression`, or a short `error: ...` for the policy to read."""
    if "\0" in expression:
        return "error: not an expression"
    result = sandbox.run(
        ["/bin/bash", "-c", _SCRIPT], stdin=expression, deadline_seconds=DEADLINE_SECONDS
    )
    if result.timed_out:
        return "error: it took too long"
    value = result.output.strip()
    if result.exit_code != 0 or not _NUMBER.fullmatch(value):
        return "error: not an expression"
    return value
