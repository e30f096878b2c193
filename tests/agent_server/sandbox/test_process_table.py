"""What processes use together."""

import os
import subprocess
import sys

from agent_server.sandbox.process_table import ProcessTable

TREE = """
import os, sys, threading
os.fork() or os.setsid()
held = bytearray(8 << 20)
threading.Thread(target=sys.stdin.read, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""


def test_threads_and_memory_of_all_descendants_are_added_up() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        for _ in range(2):
            child.stdout.readline()
        table = ProcessTable()
        threads, used = table.below([child.pid])
        assert threads == 2
        assert 8 << 20 <= used < 64 << 20
        assert table.below([os.getpid()])[0] >= 4
        assert table.below([]) == (0, 0)
    finally:
        child.kill()
        child.communicate()
