"""Guards of the grading of patches."""

from tests.guards.guard import Guard

SESSIONS = "agent_server/environments/swe/session.py"
TESTS_OF_SESSIONS = "tests/agent_server/environments/swe/test_session.py"
PATCHES = "agent_server/environments/swe/patch.py"
TESTS_OF_PATCHES = "tests/agent_server/environments/swe/test_patch.py"
IN_IMAGES = "agent_server/environments/swe/image_checkout.py"
TESTS_OF_IMAGES = "tests/agent_server/environments/swe/test_images.py"
WHAT_IS_HIDDEN = f"{TESTS_OF_IMAGES}::test_the_agent_finds_neither_the_fix_nor_its_tests"
WHAT_IS_IMPORTED = (
    f"{TESTS_OF_IMAGES}::test_the_repository_gets_in_the_way_of_no_module_of_the_tests"
)

GUARDS_OF_SWE = (
    Guard(
        "a report of tests that is not signed says nothing",
        SESSIONS,
        "    if not hmac.compare_digest(signature, expected.encode()):\n",
        "    if not expected:\n",
        TESTS_OF_SESSIONS,
    ),
    Guard(
        "a line about a test without the nonce says nothing",
        SESSIONS,
        "        if mark != nonce:\n",
        "        if not mark:\n",
        TESTS_OF_SESSIONS,
    ),
    Guard(
        "a session in which a test that must fail passed says nothing",
        SESSIONS,
        '    if any(outcomes[test] != "failed" for test in controls):\n',
        "    if not controls:\n",
        TESTS_OF_SESSIONS,
    ),
    Guard(
        "a session without all tests that must fail says nothing",
        SESSIONS,
        "    if len(controls) != count or report.exit_status != _EXIT_WITH_FAILURES:\n",
        "    if report.exit_status != _EXIT_WITH_FAILURES:\n",
        TESTS_OF_SESSIONS,
    ),
    Guard(
        "a symbolic link in a patch is refused",
        PATCHES,
        '_FILE_MODES = (b"100644", b"100755")\n',
        '_FILE_MODES = (b"100644", b"100755", b"120000")\n',
        TESTS_OF_PATCHES,
    ),
    Guard(
        "a hunk of a patch has the lines that it says",
        PATCHES,
        '        if mark not in (b" ", b"-", b"+", b"\\\\") or old < 0 or new < 0:\n',
        '        if mark not in (b" ", b"-", b"+", b"\\\\"):\n',
        TESTS_OF_PATCHES,
    ),
    Guard(
        "the history of an image's repository is not in its sandbox",
        IN_IMAGES,
        'for each in "$history" .git "$@"; do\n',
        'for each in "$@"; do\n',
        WHAT_IS_HIDDEN,
    ),
    Guard(
        "the hidden tests of an image are not in its sandbox",
        IN_IMAGES,
        'for each in "$history" .git "$@"; do\n',
        'for each in "$history" .git; do\n',
        WHAT_IS_HIDDEN,
    ),
    Guard(
        "a repository that is installed in an image is not imported before pytest",
        "agent_server/environments/swe/inside/run_tests.py",
        '        [python, "-I", "-S", "-c", reporter, str(lines_out)],\n',
        '        [python, "-I", "-c", reporter, str(lines_out)],\n',
        WHAT_IS_IMPORTED,
    ),
    Guard(
        "a repository that is installed in an image is not imported by what signs the report",
        "agent_server/environments/swe/pytest_run.py",
        '        [checkout.python, "-I", "-S", "-c", source("run_tests.py")],\n',
        '        [checkout.python, "-I", "-c", source("run_tests.py")],\n',
        WHAT_IS_IMPORTED,
    ),
)
