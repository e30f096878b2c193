"""The guards that stand in sandboxes and their bash session."""

from tests.guards.guard import Guard

BASH = "tests/agent_server/sandbox/contract/test_bash.py"
FILES = "tests/agent_server/sandbox/contract/test_files.py"
LIFETIME = "tests/agent_server/sandbox/contract/test_lifetime.py"
POOL = "tests/agent_server/sandbox/test_warm_pool.py"

GUARDS_OF_SANDBOXES = (
    Guard(
        "a file of a sandbox is reached through no link on the way",
        "agent_server/sandbox/files.py",
        "_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC",
        FILES,
    ),
    Guard(
        "a file of a sandbox is no link",
        "agent_server/sandbox/files.py",
        "_READ = os.O_RDONLY | os.O_NOFOLLOW |",
        "_READ = os.O_RDONLY |",
        FILES,
    ),
    Guard(
        "only regular files are read",
        "agent_server/sandbox/files.py",
        "if not stat.S_ISREG(found.st_mode):",
        "if False:",
        FILES,
    ),
    Guard(
        "an interrupted sandbox runs nothing",
        "agent_server/sandbox/held_sandbox.py",
        '            self._why_not = "the time for commands is over"\n',
        "",
        LIFETIME,
    ),
    Guard(
        "a fresh sandbox ends with the one it comes from",
        "agent_server/sandbox/held_sandbox.py",
        "            self._fresh.append(fresh)\n",
        "",
        LIFETIME,
    ),
    Guard(
        "an episode that is cut off keeps its sandbox",
        "agent_server/jobs/attempt.py",
        "                self.sandbox.interrupt()\n",
        "                self.sandbox.close()\n",
        "tests/agent_server/test_runner.py",
    ),
    Guard(
        "what is graded may run commands again",
        "agent_server/jobs/stages.py",
        "            attempt.sandbox.readmit()\n",
        "            pass\n",
        "tests/agent_server/test_runner.py",
    ),
    Guard(
        "a command cannot close the session's output",
        "agent_server/sandbox/session.py",
        " >&202 2>&1 200<&- 201>&- 202>&-'",
        " 2>&1 200<&- 201>&-'",
        BASH,
    ),
    Guard(
        "an interruption goes through all functions",
        "agent_server/sandbox/session.py",
        " || return 2; }}",
        " || return 0; }}",
        BASH,
    ),
    Guard(
        "an exit code comes with its command's number",
        "agent_server/sandbox/session.py",
        "            if int(told[1]) == self._number:\n                return",
        "            if True:\n                return",
        BASH,
    ),
    Guard(
        "a flood from the background leaves room",
        "agent_server/sandbox/session.py",
        "[-_PRINTED_SINCE_BYTES:]",
        "",
        BASH,
    ),
    Guard(
        "a sandbox that died waiting is not handed out",
        "agent_server/sandbox/warm_pool.py",
        "            if sandbox.alive:\n                return sandbox\n",
        "            return sandbox\n",
        POOL,
    ),
    Guard(
        "an interruption is over before its block",
        "agent_server/control/stop.py",
        "                with self._interrupting:\n                    pass\n",
        "                pass\n",
        "tests/agent_server/test_stop.py",
    ),
)
