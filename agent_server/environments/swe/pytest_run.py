"""One run of a repository's tests in a sandbox, with a report that the tested code cannot write."""

import secrets
from collections.abc import Sequence

from agent_server.environments.swe.checkout import Checkout
from agent_server.environments.swe.inside import source
from agent_server.environments.swe.session import Forged, Secrets, Session, read_session
from agent_server.sandbox.protocol import WORKSPACE, FileRefused, Sandbox, SandboxUnavailable
from rollyard.codec import encode_json

_MUST_FAIL = 7
"""Number of tests in `inside/must_fail.py`."""
_MOST_REPORT_BYTES = 64 << 20
_CANNOT_START = (126, 127)
_GRACE_SECONDS = 10.0


def run_tests(
    sandbox: Sandbox, checkout: Checkout, files: Sequence[str], seconds: float
) -> Session:
    """Run the tests in these files of the repository. Raises `Forged` for a session whose outcomes
    mean nothing, and `SandboxUnavailable`."""
    known = Secrets(key=secrets.token_hex(32), nonce=secrets.token_hex(16))
    name, directory = secrets.token_hex(8), checkout.directory
    must_fail, report = f"{WORKSPACE}/{name}/test_{name}.py", f"{WORKSPACE}/{name}/report"
    sandbox.write(must_fail, source("must_fail.py").encode())
    order = {
        "key": known.key,
        "report": report,
        "python": checkout.python,
        "reporter": source("find_pytest.py") + source("report_tests.py"),
        "seconds": seconds,
        "child": {
            "nonce": known.nonce,
            "must_fail": must_fail,
            "directory": directory,
            "import_from": [f"{directory}/src", directory],
            # Options of the repository ask for plugins, as for coverage, that may not be here.
            "options": ["--override-ini", "addopts="],
            "files": list(files),
        },
    }
    done = sandbox.run(
        [checkout.python, "-I", "-S", "-c", source("run_tests.py")],
        stdin=encode_json(order).decode(),
        deadline_seconds=seconds + _GRACE_SECONDS,
    )
    if done.exit_code in _CANNOT_START:
        raise SandboxUnavailable(f"the sandbox has no pytest: {done.output[-300:]}")
    try:
        written = sandbox.read(report, most_bytes=_MOST_REPORT_BYTES)
    except FileRefused as error:
        raise Forged(done.exceeded or f"the report of the tests is gone ({error})") from error
    return read_session(written, known, name, _MUST_FAIL)
