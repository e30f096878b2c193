"""The collector of a process that serves: it leaves out what stays, and misses nothing else."""

import subprocess
import sys

LEAVES_CYCLES = """
import gc, weakref
from serving.garbage import collect_seldom

class Cycle:
    def __init__(self):
        self.itself = self

collect_seldom()
assert gc.get_freeze_count() > 0
first = weakref.ref(Cycle())
made = [Cycle() for _ in range(20_000)]
del made
for _ in range(1_000_000):
    if first() is None:
        break
    Cycle()
print(first())
"""


def test_cycles_are_found_all_the_same() -> None:
    command = [sys.executable, "-c", LEAVES_CYCLES]
    ran = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert ran.stdout == b"None\n"
