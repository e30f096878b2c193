"""One worker: RQ's, with deadlines that hold.

- It is the first process of a process table of its own (`environments.hosted.containment`), so that
  whatever its tasks start dies with it, the work horse first of all.
- Each task runs in a work horse that RQ forks, with all graders imported. After the task, and at
  its deadline, everything else in the process table is killed, whatever signals it blocks.
- Only a task that was killed from outside is tried again: what a grader did to itself, it would do
  again.
- It takes its orders from the queue alone, and leaves when that has been empty for a while.
"""

import contextlib
import gc
import os
import signal
import socket

import msgspec
from redis import Redis
from rq import Queue, Worker
from rq.exceptions import InvalidJobOperation
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty
from rq.utils import now

from agent_server.environments.hosted import frames
from agent_server.environments.hosted.process import ProcessEnd
from agent_server.sandbox.process import is_gone
from rollyard import codec
from rollyard.errors import GraderFailed, RollyardError, Unavailable
from rollyard.messages import Failure

QUEUE = "rewards"


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The first and only frame to a worker."""

    name: str
    redis_url: str
    password: str
    idle_seconds: int


def serve(service: socket.socket, _: object) -> None:
    """Work until there has been nothing to do for a while."""
    first = frames.receive(service)
    if not isinstance(first, frames.SettingsFrame):
        return  # the service is gone already
    settings = codec.decode(first.settings, WorkerSettings)
    # Each work horse has a connection of its own, and what introduces it would be read from a file.
    redis = Redis.from_url(settings.redis_url, password=settings.password or None, driver_info=None)
    queue = Queue(QUEUE, connection=redis, serializer=JSONSerializer)
    worker = RewardWorker([queue], settings.name, connection=redis, serializer=JSONSerializer)
    gc.freeze()  # a collection in a work horse would write to, and so copy, every page
    worker.work(logging_level="WARNING", max_idle_time=settings.idle_seconds)


class NoAlarm(BaseDeathPenalty):
    """No deadline within the work horse: a grader could block its signal, or be in C code."""

    def setup_death_penalty(self) -> None:
        pass

    def cancel_death_penalty(self) -> None:
        pass


class RewardWorker(Worker):
    death_penalty_class = NoAlarm
    max_connection_wait_time = 1.0

    def subscribe(self) -> None:
        pass

    def execute_job(self, job: Job, queue: Queue) -> None:
        self.set_current_job_id(job.id)  # so that the service knows it if this worker is killed
        super().execute_job(job, queue)

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        """Wait for the work horse, at most to the deadline, and leave nothing of it behind."""
        job.started_at = now()
        horse = os.pidfd_open(self.horse_pid)
        try:
            in_time = is_gone(horse, float(job.timeout or 0))
        finally:
            os.close(horse)
        self.kill_horse()
        _, status, _ = self.wait_for_horse()
        self._horse_pid = 0
        _reap_the_rest()
        if status == os.EX_OK or _is_over(job):
            return  # the work horse has stored what became of the task, or nobody waits any more
        job.ended_at = now()
        error = _why_it_ended(job, in_time, status or 0)
        if not isinstance(error, Unavailable):
            job.retries_left = None
        self.handle_job_failure(job, queue=queue, exc_string=as_text(error))

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        if os.getpid() != 1:
            raise RuntimeError("a worker kills all but itself, and must be alone with its tasks")
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, sig)


def as_text(error: RollyardError) -> str:
    """An error as RQ stores it."""
    failure = Failure(code=error.code, message=error.message, fix=error.fix)
    return codec.encode_json(failure).decode()


def _is_over(job: Job) -> bool:
    try:
        return job.get_status() in (JobStatus.FINISHED, JobStatus.FAILED)
    except InvalidJobOperation:  # it was dropped meanwhile
        return True


def _reap_the_rest() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _why_it_ended(job: Job, in_time: bool, status: int) -> RollyardError:
    grader = f"the grader of {job.args[1]['data_source']!r}"
    if not in_time:
        return GraderFailed(f"{grader} did not come back within {job.timeout} s")
    end = ProcessEnd(os.waitstatus_to_exitcode(status), "")
    if end.exit_code == -signal.SIGKILL:  # by the machine, which had no memory, or by a person
        return Unavailable(f"the process of {grader} {end}")
    return GraderFailed(f"the process of {grader} {end}")
