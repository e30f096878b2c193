"""Celery in one process with threads."""

from benchmarks.dispatch.peers.celery_tasks import threads
from benchmarks.dispatch.peers.job import answer

if __name__ == "__main__":
    answer(threads)
