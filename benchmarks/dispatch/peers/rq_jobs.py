"""RQ with its fastest worker, one for each core, which runs jobs without a fork.

All jobs are enqueued in one pipeline, and only the last results are waited for: both favour RQ.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from redis import Redis
from rq import Queue

from benchmarks.dispatch.peers.job import BODY, answer, noop

WAIT_SECONDS = 120


@contextlib.contextmanager
def workers(redis_port: int) -> Iterator[None]:
    url = f"redis://127.0.0.1:{redis_port}"
    command = [sys.executable, "-m", "rq.cli", "worker", "--quiet", "--url", url]
    command += ["--worker-class", "rq.worker.SimpleWorker"]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for worker in running:
            worker.terminate()
        for worker in running:
            worker.wait()


def run(queue: Queue, jobs: int) -> None:
    prepared = [Queue.prepare_data(noop, (BODY,)) for _ in range(jobs)]
    for job in queue.enqueue_many(prepared)[-4:]:
        if job.latest_result(timeout=WAIT_SECONDS) is None:
            raise SystemExit(f"RQ did not finish {jobs} jobs within {WAIT_SECONDS} s")


def measure(jobs: int, redis_port: int) -> float:
    queue = Queue(connection=Redis(port=redis_port))
    with workers(redis_port):
        run(queue, 50)
        began = time.perf_counter()
        run(queue, jobs)
        return time.perf_counter() - began


if __name__ == "__main__":
    answer(measure)
