"""Ray remote tasks. None of it is durable."""

import os
import tempfile
import time

import ray

from benchmarks.dispatch.peers.job import BODY, answer, noop


def measure(jobs: int, _redis_port: int) -> float:
    with tempfile.TemporaryDirectory(prefix="ray") as directory:
        ray.init(
            num_cpus=os.cpu_count(),
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=directory,
        )
        task = ray.remote(noop)
        ray.get([task.remote(BODY) for _ in range(200)])
        began = time.perf_counter()
        ray.get([task.remote(BODY) for _ in range(jobs)])
        seconds = time.perf_counter() - began
        ray.shutdown()
    return seconds


if __name__ == "__main__":
    answer(measure)
