"""The tasks in Redis: RQ's queue, with JSON on the wire and the errors of Redis translated.

A task is enqueued, run at least once, and forgotten soon after its outcome was there to be read, or
when nobody waits for it any more.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence

import msgspec
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry as NoRetry
from rq import Queue, Retry, Worker
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import Job, JobStatus
from rq.results import Result
from rq.serializers import JSONSerializer

from agent_server.rewards.protocol import ScoreTask
from orchestrator.queues.address import RedisAddress
from reward_service import job as work
from reward_service.outcome import TaskOutcome
from reward_service.worker import QUEUE, as_text
from rollyard.codec import decode_json, learnt
from rollyard.errors import InvalidMessage, QueueUnavailable, Unavailable
from rollyard.messages import Failure

_RETRIES = 2
"""Number of times that a task is tried again whose process was killed from outside."""
_OUTCOME_SECONDS = 30
"""Time for which an outcome can be read."""
_BLOCK_SECONDS = 5
_ANSWER_SECONDS = _BLOCK_SECONDS + 5.0
_CONNECTIONS = 4096


class TaskQueue:
    """The queue of one service. Safe to share between threads."""

    def __init__(self, address: RedisAddress) -> None:
        self._redis = Redis.from_url(
            address.url,
            password=address.password or None,
            socket_timeout=_ANSWER_SECONDS,
            socket_connect_timeout=_BLOCK_SECONDS,
            max_connections=_CONNECTIONS,
            retry=NoRetry(NoBackoff(), retries=0),
        )
        self._queue = Queue(QUEUE, connection=self._redis, serializer=JSONSerializer)

    def ping(self) -> None:
        with _translating():
            self._redis.ping()

    def put(
        self, tasks: Sequence[tuple[str, ScoreTask]], task_seconds: int, wait_seconds: int
    ) -> list[Job]:
        """Enqueue tasks, each with the value of its grader's entry point. What has not begun after
        `wait_seconds` is dropped."""
        prepared = [
            Queue.prepare_data(
                work.score,
                (grader, msgspec.to_builtins(task)),
                timeout=task_seconds,
                result_ttl=_OUTCOME_SECONDS,
                failure_ttl=_OUTCOME_SECONDS,
                ttl=wait_seconds,
                description=task.data_source,
                retry=Retry(max=_RETRIES),
            )
            for grader, task in tasks
        ]
        with _translating():
            return self._queue.enqueue_many(prepared)

    def outcome(self, job: Job, ends_at: float) -> TaskOutcome:
        """What became of the task. Raises `Unavailable` if that is unknown when the monotonic clock
        reaches `ends_at`."""
        while (left := ends_at - time.monotonic()) > 0:
            seconds = min(math.ceil(left), _BLOCK_SECONDS)
            with _translating():
                result = job.latest_result(timeout=seconds)
            if result is not None:
                return _read(result)
        raise Unavailable(
            "a task was not graded in time: too many others came before it",
            fix="let the reward service have more workers",
        )

    def worker_ended(self, name: str, how: str) -> None:
        """Have the task that a worker was killed with tried again."""
        key = Worker.redis_worker_namespace_prefix + name
        # Without its job, nobody waits for the task any more.
        with _translating(), contextlib.suppress(NoSuchJobError, InvalidJobOperation):
            worker = Worker.find_by_key(key, connection=self._redis, serializer=JSONSerializer)
            if worker is None:
                return
            worker.register_death()
            job = worker.get_current_job()
            if job is not None and job.get_status() not in (JobStatus.FINISHED, JobStatus.FAILED):
                worker.execution = next(iter(job.get_executions()), None)
                lost = Unavailable(f"a worker of the reward service {how}")
                worker.handle_job_failure(job, self._queue, exc_string=as_text(lost))

    def close(self) -> None:
        self._redis.close()


def _read(result: Result) -> TaskOutcome:
    if result.type is Result.Type.SUCCESSFUL:
        return msgspec.convert(result.return_value, learnt(TaskOutcome))
    said = result.exc_string or ""
    try:
        return TaskOutcome(failure=decode_json(said.encode(), Failure))
    except InvalidMessage:  # RQ itself failed, with a traceback
        last = said.strip().rpartition("\n")[2]
        raise Unavailable(f"a worker of the reward service failed: {last}") from None


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise QueueUnavailable(
            f"the Redis of the reward service does not do its work: {error}",
            fix="is it running, and not out of memory? its log says why not",
        ) from error
