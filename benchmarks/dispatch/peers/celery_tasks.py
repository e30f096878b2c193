"""Celery with Redis as broker and result backend."""

import os
import subprocess
import sys
import time

from celery import Celery

from benchmarks.dispatch.peers.job import BODY, noop

WAIT_SECONDS = 120

app = Celery("benchmarks.dispatch.peers.celery_tasks")
app.conf.broker_connection_retry_on_startup = True
task = app.task(noop, name="noop")


def connect(redis_port: int) -> None:
    app.conf.broker_url = app.conf.result_backend = f"redis://127.0.0.1:{redis_port}"


def run(jobs: int) -> None:
    for result in [task.delay(BODY) for _ in range(jobs)]:
        result.get(timeout=WAIT_SECONDS)


def measure_pool(pool: str, concurrency: int, jobs: int, redis_port: int) -> float:
    connect(redis_port)
    command = [sys.executable, "-m", "celery", "-b", str(app.conf.broker_url)]
    command += ["--result-backend", str(app.conf.result_backend), "-A", app.main, "worker"]
    command += ["-P", pool, "-c", str(concurrency), "-l", "ERROR"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        run(50)
        began = time.perf_counter()
        run(jobs)
        return time.perf_counter() - began
    finally:
        worker.terminate()
        worker.wait()


def prefork(jobs: int, redis_port: int) -> float:
    return measure_pool("prefork", os.cpu_count() or 1, jobs, redis_port)


def threads(jobs: int, redis_port: int) -> float:
    return measure_pool("threads", 16, jobs, redis_port)
