"""Celery in its default pool: a process for each core."""

from benchmarks.dispatch.peers.celery_tasks import prefork
from benchmarks.dispatch.peers.job import answer

if __name__ == "__main__":
    answer(prefork)
