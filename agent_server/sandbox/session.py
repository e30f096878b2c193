"""The bash session of a sandbox: one bash, asked one command after the other.

- Commands travel on a pipe of their own, and exit codes on another, of which the commands know
  nothing: whatever they print, close or leave half said, the session understands the next one.
- A command ends when bash says so. Everything it has printed by then is in the pipe for output and
  is read; what its background processes print later is part of the next command's output.
- Bash itself may end at any time, by `exit` or by a kill. The session is then over.
"""

import array
import contextlib
import fcntl
import os
import re
import selectors
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Sequence

import psutil

from agent_server.sandbox.command import PACKAGE, STUB
from agent_server.sandbox.process import (
    REAP_SECONDS,
    Output,
    first_process,
    kill_first_process,
    start,
    write_some,
)
from agent_server.sandbox.protocol import CommandResult, SandboxUnavailable

_RESUME = "if [[ ${__stopped:-} ]]; then trap - DEBUG; shopt -u extdebug; __stopped=; fi"

# A command is read by its length in bytes: up to a delimiter, bash would read each byte by itself.
# A loop around `source` takes up what `break` does in a command. Redirections of `eval` end with
# it, so that no `exec` of a command closes the session's pipes, which bash keeps from the programs
# that it starts. The trap comes anew before each command, which may have set its own. It returns
# from one function or file only; the trap for debuggers then lets their callers return, too. A bash
# that has restricted itself can redirect nothing for as long as it lives.
_DRIVER = f"""
exec 200<&0 201>&2 202>&1 </dev/null >/dev/null 2>&1
__stop='__stopped=130; shopt -s extdebug; trap __leave DEBUG; return 130'
__leave() {{ (( ${{#BASH_SOURCE[@]}} < 2 )) || return 2; }}
while trap "$__stop" INT
      IFS= builtin read -r -d '' __number <&200 && IFS= builtin read -r -d '' __length <&200
      LC_ALL=C builtin read -r -N "$__length" __command <&200
do
  {_RESUME}
  for _ in once; do builtin source @STUB@; done
  __status=${{__stopped:-$?}}
  {_RESUME}
  [[ $- != *r* ]] || builtin exit "$__status"
  builtin printf '\\0%s %s\\0' "$__number" "$__status" >&201
done
"""
SOURCED = r'\builtin eval "$__command" </dev/null >&202 2>&1 200<&- 201>&- 202>&-'
"""Content of the file that the driver sources: only from such a file, or from a function, which
would take its variables with it, can a trap return."""

_CHUNK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20
"""Room for what background processes print while nobody reads."""
_PRINTED_SINCE_BYTES = 4096
_INTERRUPT_SECONDS = 0.3
"""Time for a command to end after each signal."""
_INTERRUPTIONS = 2
"""A program may need to be told twice."""
_START_SECONDS = 10.0
_STATUS = re.compile(rb"([0-9]+) ([0-9]{1,3})")
_MAX_STATUS_BYTES = 4096
_TICK_SECONDS = 0.02
"""Precision of the kernel's start times, rounded up."""


def bash_that_sources(stub: str) -> tuple[str, ...]:
    """The command line of the session's bash, for which the file `stub` has the text `SOURCED`."""
    driver = _DRIVER.replace("@STUB@", stub)
    return ("/bin/bash", "--noprofile", "--norc", "-c", driver, "bash")


BASH = bash_that_sources(f"{PACKAGE}/{STUB}")


class _Lost(Exception):
    """The end of the session, or of what can be understood of it."""


class BashSession:
    """Owns the process. `run` is called by one thread at a time, `kill` by any."""

    def __init__(self, argv: Sequence[str], directory: str, *, output_bytes: int) -> None:
        """Start `argv`, which confines bash with the driver, in `directory`. Raises
        `SandboxUnavailable`."""
        self._output_bytes = output_bytes
        self._number = 0
        """Number of the last command. An exit code comes with its command's: one that a command has
        forged cannot be taken for the next one's."""
        self._lock = threading.Lock()
        self._killed = False
        """True also while what was killed has yet to end."""
        self._process = start(argv, directory, stderr=subprocess.PIPE)
        self._commands, self._printed, self._statuses = _pipes(self._process)
        os.set_blocking(self._commands, False)
        with contextlib.suppress(OSError):  # beyond the limit of this user
            fcntl.fcntl(self._printed, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def await_start(self) -> None:
        """Wait until bash answers. Raises `SandboxUnavailable`."""
        try:
            if self._exchange(b":", Output(0), _START_SECONDS) is not None:
                return
            problem = "no answer"
        except _Lost as error:
            problem = str(error)
        self.end()
        raise SandboxUnavailable(f"bash cannot be started: {problem}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        with self._lock:
            return not self._killed and self._process.poll() is None

    def run(self, command: bytes, deadline_seconds: float) -> CommandResult:
        """Run `command` to its end, or to the deadline and the end of its interruption. A result
        that says `restarted` is the session's last."""
        began, output = time.clock_gettime(time.CLOCK_BOOTTIME), Output(self._output_bytes)
        output.keep(self._printed_since())
        timed_out = False
        try:
            code = self._exchange(command, output, deadline_seconds)
            timed_out = code is None
            for stop in (*[self._interrupt] * _INTERRUPTIONS, self._kill_started):
                if code is None:
                    stop(began)
                    code = self._exchange(None, output, _INTERRUPT_SECONDS)
        except _Lost:
            code = None
        if code is None:
            return output.result(self.end(), timed_out=timed_out, restarted=True)
        return output.result(code, timed_out=timed_out)

    def kill(self) -> None:
        """Kill bash and all that it started; the command under way ends at once."""
        with self._lock:
            self._killed = True
            if self._process.returncode is None:
                kill_first_process(self._process.pid)

    def end(self) -> int:
        """Kill what is left of the session, wait for its end, and return bash's exit code."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        with self._lock:
            try:
                return self._process.wait(REAP_SECONDS)
            except subprocess.TimeoutExpired as error:
                self._process.kill()
                raise SandboxUnavailable("a bash session does not end") from error

    def _exchange(self, command: bytes | None, output: Output, seconds: float) -> int | None:
        """Send `command`, if there is another, and read output until the exit code comes; None if
        that takes too long. Raises `_Lost`."""
        deadline, waiting, said = time.monotonic() + seconds, self._numbered(command), b""
        with selectors.DefaultSelector() as selector:
            for pipe in (self._statuses, self._printed):
                selector.register(pipe, selectors.EVENT_READ)
            if waiting:
                selector.register(self._commands, selectors.EVENT_WRITE)
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fd == self._commands:
                        waiting = waiting[write_some(self._commands, waiting) :]
                        if not waiting:
                            selector.unregister(self._commands)
                    elif key.fd == self._printed:
                        if not (chunk := os.read(self._printed, _CHUNK_BYTES)):
                            selector.unregister(self._printed)
                        output.keep(chunk)
                    else:
                        chunk = os.read(self._statuses, _CHUNK_BYTES)
                        code, said = self._code(said + chunk)
                        if not chunk or code is not None:
                            self._read_the_rest(output)
                            return _certain(code, said)
        return None

    def _numbered(self, command: bytes | None) -> memoryview:
        """The message with the next command; nothing if there is none."""
        if command is None:
            return memoryview(b"")
        self._number += 1
        return memoryview(b"%d\0%d\0%b" % (self._number, len(command), command))

    def _code(self, said: bytes) -> tuple[int | None, bytes]:
        """The exit code of the last command, if it is in what was said, and what is unfinished.
        Raises `_Lost`."""
        *parts, rest = said.split(b"\0")
        for told in filter(None, map(_STATUS.fullmatch, parts)):
            if int(told[1]) == self._number:
                return int(told[2]), rest
        if len(rest) > _MAX_STATUS_BYTES:
            raise _Lost("nothing that it says is an exit code")
        return None, rest

    def _printed_since(self) -> bytes:
        """The end of what background processes have printed since the last command: a flood of it
        is to leave room for the next."""
        left = _readable_bytes(self._printed)
        return os.read(self._printed, left)[-_PRINTED_SINCE_BYTES:] if left else b""

    def _read_the_rest(self, output: Output) -> None:
        """Read what the pipe for output holds now; background processes may fill it for ever."""
        left = _readable_bytes(self._printed)
        while left > 0 and (chunk := os.read(self._printed, left)):
            output.keep(chunk)
            left -= len(chunk)

    def _interrupt(self, began: float) -> None:
        """Send SIGINT to what the command that began then, in seconds since the machine's start,
        has in the foreground."""
        # Bash first: a loop would start its next program before it hears of the signal. What was
        # started with `&` is deaf to SIGINT, as it is to Ctrl-C.
        bash, others = self._processes(began)
        for process in (*bash, *others):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGINT)

    def _kill_started(self, began: float) -> None:
        """Kill all that the command that began then has started, but not bash."""
        for process in self._processes(began)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _processes(self, began: float) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """Bash, and all processes in its process table that are not older than `began`."""
        since = psutil.boot_time() + began - _TICK_SECONDS
        with contextlib.suppress(psutil.NoSuchProcess):
            if first := first_process(self._process.pid):
                inside = sorted(first.children(recursive=True), key=psutil.Process.create_time)
                return inside[:1], [one for one in inside[1:] if one.create_time() >= since]
        return [], []


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    """The descriptors of the pipes to standard input and from standard output and error."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()


def _readable_bytes(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def _certain(code: int | None, said: bytes) -> int:
    """The exit code, unless the session has ended before it came. Raises `_Lost`."""
    if code is None:
        raise _Lost(said.decode(errors="replace").strip() or "it has ended")
    return code
