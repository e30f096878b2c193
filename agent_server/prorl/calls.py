"""The calls of `/process` that are not answered yet."""

import secrets
import time
from concurrent.futures import Future
from hashlib import sha256
from typing import Any

from agent_server.agents.protocol import Task
from agent_server.control.stop import StopReason, StopSignal
from agent_server.prorl.messages import (
    ProcessAnswer,
    ProcessRequest,
    ProcessTiming,
)
from agent_server.prorl.names import instance_id_of
from agent_server.prorl.sampling import read_sampling
from agent_server.prorl.transcript import earlier_told, messages_told
from rollyard.errors import RollyardError
from rollyard.messages import (
    Assignment,
    Job,
    Lease,
    Outcome,
    Prompt,
    Result,
    Timings,
)

RUN_ID = "~prorl"
"""The run of all these Jobs; no Run can have this name."""
RESOLVED_ABOVE = 0.99
"""Score above which a row counts as resolved."""


class ProcessCall:
    """One call, from its request to its answer."""

    def __init__(
        self,
        request: ProcessRequest,
        environment: str,
        job_seconds: float,
        *,
        run_id: str = RUN_ID,
        group_id: str = "",
    ) -> None:
        """Its Job is of this Run, and of the row's own Group unless one is named. Raises
        `InvalidMessage`."""
        self.instance = request.instance
        self.instance_id = group_id or instance_id_of(request.instance)
        self._run_id = run_id
        self.job_id = request.job_id or self._make_job_id()
        self.assignment = self._assign(request, environment, job_seconds)
        self.task: Task | None = None
        """The agent's task; None before RUN."""
        self.accepted = False
        """True once its Job is the runner's."""
        self.result: Future[Result] = Future()
        self.stop = StopSignal()
        """Signal that nobody needs the Result any more."""
        self.traceback: str | None = None
        """That of what its attempt raised."""
        self.error: RollyardError | None = None
        """The answer once it is stopped."""
        self._began = time.monotonic()

    @property
    def name(self) -> str:
        """A name that no other call has, also after a restart."""
        return self.assignment.lease.job_id

    @property
    def lease(self) -> Lease:
        return self.assignment.lease

    def end(self, error: RollyardError) -> None:
        """Stop it; the first `error` is its answer."""
        self.error = self.error or error
        self.stop.stop(StopReason.CANCELLED)

    def answer(self, result: Result) -> ProcessAnswer:
        timing, task = self._timing(result), self.task
        critical = None if result.outcome is Outcome.COMPLETED else _stage(result.timings)
        critical = "timeout" if timing.timeout_triggered else critical
        trajectory = result.trajectory
        ended = trajectory is not None and not trajectory.truncated
        return ProcessAnswer(
            job_id=self.job_id,
            instance_id=self.instance_id,
            trajectory_id=self.instance.get("trajectory_id"),
            messages=() if trajectory is None else messages_told(trajectory),
            tools=() if task is None else tuple(tool.as_function() for tool in task.opening.tools),
            end_properly=ended,
            success=critical is None,
            error=result.error or ("the time was over" if critical else None),
            finish=ended,
            resolved=result.reward is not None and result.reward > RESOLVED_ABOVE,
            critical_error=critical,
            traceback=self.traceback,
            filter=critical is not None,
            git_patch=None if task is None else task.environment.patch,
            timing=timing,
            score=result.reward,
            earlier=() if trajectory is None else earlier_told(trajectory),
        )

    def _timing(self, result: Result) -> ProcessTiming:
        spent = result.timings
        counted = spent.init_seconds + spent.run_seconds + spent.eval_seconds
        limit = self.assignment.job.limits.job_seconds
        return ProcessTiming(
            init_time=spent.init_seconds,
            run_time=spent.run_seconds,
            eval_time=spent.eval_seconds,
            others_time=max(0.0, time.monotonic() - self._began - counted),
            counted_elapsed=counted,
            timeout_triggered=counted >= limit,
        )

    def _make_job_id(self) -> str:
        named = f"{self.instance_id}_{self.instance.get('trajectory_id')}"
        return f"{sha256(named.encode(errors='replace')).hexdigest()[:16]}-{secrets.token_hex(4)}"

    def _assign(self, request: ProcessRequest, environment: str, job_seconds: float) -> Assignment:
        sampling, limits = read_sampling(request.sampling_params, job_seconds=job_seconds)
        name = f"{self._run_id}/{secrets.token_hex(8)}"
        row: dict[str, Any] = {**request.instance, "data_source": environment}
        job = Job(
            job_id=name,
            run_id=self._run_id,
            group_id=self.instance_id,
            member=0,
            prompt=Prompt(prompt_id=secrets.token_hex(8), instance=row),
            sampling=sampling,
            limits=limits,
        )
        return Assignment(job=job, lease=Lease(job_id=name, attempt=1, server_id="", slot=""))


def _stage(timings: Timings) -> str:
    """The stage in which an attempt ended."""
    if timings.eval_seconds:
        return "eval"
    return "run" if timings.run_seconds else "init"
