"""An entrant that is ready, plays three episodes, leaves a worker that sleeps, and never ends."""

import subprocess
import sys

from benchmarks.peers.entrants import entrant

if __name__ == "__main__":
    entrant.parse()
    print("packages talk, too")
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    entrant.ready(named="time.sleep")
    entrant.finished(0, 1.0)
    entrant.failed(0, "no answer")
    entrant.failed(0, f"the worker ended with {worker.wait()}")
    sys.stdin.readline()
