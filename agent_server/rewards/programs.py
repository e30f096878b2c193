"""Running a program on one test, in a sandbox that knows no expected result.

- A program that reads its input prints to a file that belongs to this test alone.
- A function is called by a harness, which keeps the file to itself and gives the function's result
  as JSON; what the function prints is discarded. The program may write to that file as well. It can
  write no more than a value there, and does not know which one would pass: to forge a result is to
  compute it.
"""

import json
import signal
from typing import Any

import msgspec

from agent_server.rewards.comparison import same_output, same_value
from agent_server.rewards.program_tests import CallTest, ProgramTests, StdinTest, Test
from agent_server.sandbox.protocol import CommandResult, FileRefused, Sandbox

PROGRAM = "program.py"

_WALL_OVER_CPU = 3.0
"""Deadline in CPU limits: a program may wait for a busy machine, and not for ever."""
_KILLED = (128 + signal.SIGKILL, 128 + signal.SIGXCPU)
"""Exit codes of a process that exceeded its CPU limit, or the sandbox's memory."""
_OUT_OF_TIME = "ran out of time or memory"
_RESULT_SLACK_BYTES = 4096
"""Blanks that a right result may have beyond the expected one."""

# A limit above the sandbox's own cannot be set, and is not needed: that one holds.
_RUN = """
{ ulimit -t "$1"; ulimit -v "$2"; } 2>/dev/null
result=$3; shift 3; exec "$@" >"$result" 2>/dev/null
"""

# LeetCode's starter code uses the names of typing and collections without importing them. They are
# builtins here, so that the tested function is always the program's own.
_HARNESS = """
import builtins, collections, functools, heapq, itertools, json, math, os, re, sys, typing
result = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
name, arguments, from_apps = json.load(sys.stdin)
if from_apps:
    for place, given in enumerate(arguments):
        if isinstance(given, dict) and all(map(re.compile("-?[0-9]{1,18}").fullmatch, given)):
            arguments[place] = {int(key): value for key, value in given.items()}
for module in (typing, collections):
    vars(builtins).update({each: getattr(module, each) for each in module.__all__})
for module in (collections, functools, heapq, itertools, math):
    setattr(builtins, module.__name__, module)
names = {"__name__": "program"}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), names)
function = names[name] if name in names else getattr(names["Solution"](), name)
json.dump(function(*arguments), result)
result.close()
os._exit(0)
"""


class Trial(msgspec.Struct, frozen=True):
    """A program's run on one test."""

    passed: bool
    out_of_time: bool = False
    problem: str = ""
    """What happened, for a reader of the grade."""


class Program:
    """A program in a sandbox that nothing else has touched."""

    def __init__(self, source: bytes, tests: ProgramTests, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._limits = (str(tests.cpu_seconds), str(tests.memory_bytes // 1024))
        self._wall_seconds = tests.cpu_seconds * _WALL_OVER_CPU
        sandbox.write(PROGRAM, source)

    def try_on(self, test: Test, number: int, *, most_seconds: float) -> Trial:
        """Run it on the test, unless no time is left. Raises `SandboxUnavailable`."""
        if most_seconds <= 0:
            return Trial(passed=False, out_of_time=True, problem=_OUT_OF_TIME)
        result = f"result-{number}"
        ended = self._run(test, result, min(most_seconds, self._wall_seconds))
        if ended.timed_out or ended.exit_code in _KILLED:
            return Trial(passed=False, out_of_time=True, problem=_OUT_OF_TIME)
        if ended.exit_code != 0:
            return Trial(passed=False, problem=f"ended with exit code {ended.exit_code}")
        try:
            printed = self._sandbox.read(result, most_bytes=_most_bytes(test))
        except FileRefused as error:
            return Trial(passed=False, problem=f"left no readable result: {error.message}")
        if not _passes(test, printed):
            return Trial(passed=False, problem="gave another result")
        return Trial(passed=True)

    # Isolated (-I), so that no file that one test left changes how the next one starts.
    def _run(self, test: Test, result: str, seconds: float) -> CommandResult:
        if isinstance(test, StdinTest):
            argv, stdin = [PROGRAM], test.stdin
        else:
            argv = ["-c", _HARNESS, PROGRAM]
            stdin = json.dumps([test.function, test.arguments, test.from_apps])
        confined = ["/bin/bash", "-c", _RUN, "test", *self._limits, result, "python3", "-I"]
        return self._sandbox.run([*confined, *argv], stdin=stdin, deadline_seconds=seconds)


def _most_bytes(test: Test) -> int:
    expected = test.expected if isinstance(test, StdinTest) else json.dumps(test.expected)
    return 2 * len(expected.encode(errors="surrogatepass")) + _RESULT_SLACK_BYTES


def _passes(test: Test, given: bytes) -> bool:
    text = given.decode(errors="replace")
    if isinstance(test, StdinTest):
        return same_output(test.expected, text)
    try:
        returned = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return same_value(test.expected, returned) or _is_wrapped(test, returned)


def _is_wrapped(test: CallTest, returned: Any) -> bool:
    """Whether the result is the only item of what is expected, as APPS writes some results."""
    expected = test.expected
    if not test.from_apps or not isinstance(expected, list) or len(expected) != 1:
        return False
    return same_value(expected[0], returned)
