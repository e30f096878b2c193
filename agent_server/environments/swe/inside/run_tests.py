"""Runs the tests of a repository in a child process, and signs what is reported of each.

Reads an order as JSON from standard input, and writes the report to the file that it names. The
child, `report_tests.py`, imports the code under test, so that nothing in it is a secret from that
code: the key of the signature is here alone, read before there is a child, in a process that no
other can look into.
"""

import ctypes
import hashlib
import hmac
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_DUMPABLE = 4
_CHUNK_BYTES = 1 << 16
_MOST_REPORT_BYTES = 32 << 20
_TAIL_BYTES = 4000


def main() -> None:
    # Neither /proc/PID/fd nor ptrace opens a process that may not be dumped to others of its user.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    order = json.load(sys.stdin)
    report = run(order["child"], order["python"], order["reporter"], order["seconds"])
    body = json.dumps(report).encode()
    signature = hmac.new(bytes.fromhex(order["key"]), body, hashlib.sha256).hexdigest()
    Path(order["report"]).write_bytes(signature.encode() + b"\n" + body)


def run(
    child: "dict[str, object]", python: str, reporter: str, seconds: float
) -> "dict[str, object]":
    """Run the tests to their end or for `seconds`."""
    lines_in, lines_out = os.pipe()
    ended = _ends_of_children()
    process = subprocess.Popen(
        [python, "-I", "-S", "-c", reporter, str(lines_out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lines_out,),
        start_new_session=True,
    )
    os.close(lines_out)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(child).encode())
    process.stdin.close()
    output = process.stdout.fileno()
    lines, tail, in_time = _listen(lines_in, output, ended, time.monotonic() + seconds)
    if not in_time:
        os.killpg(process.pid, signal.SIGKILL)
    return {
        "lines": lines.decode(errors="replace").splitlines(),
        "exit_status": process.wait(),
        "in_time": in_time,
        "tail": tail.decode(errors="replace"),
    }


def _ends_of_children() -> int:
    """A descriptor that can be read once a child has ended."""
    told_in, told_out = os.pipe()
    os.set_blocking(told_out, False)
    signal.set_wakeup_fd(told_out)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return told_in


def _listen(lines_in: int, output: int, ended: int, deadline: float) -> "tuple[bytes, bytes, bool]":
    """The child's lines, the end of its output, and whether it ended by the deadline. What it
    started may hold its pipes open for longer, so that its own end is waited for as well."""
    lines, tail = b"", b""
    with selectors.DefaultSelector() as selector:
        for source in (lines_in, output, ended):
            selector.register(source, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            ready = {key.fd for key, _ in selector.select(deadline - time.monotonic())}
            if ready == {ended}:
                return lines, tail, True
            for source in ready - {ended}:
                chunk = os.read(source, _CHUNK_BYTES)
                if not chunk:
                    selector.unregister(source)
                elif source == output:
                    tail = (tail + chunk)[-_TAIL_BYTES:]
                elif len(lines) < _MOST_REPORT_BYTES:
                    lines += chunk
    return lines, tail, False


if __name__ == "__main__":
    main()
