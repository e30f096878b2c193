"""Questions and orders of operators. All state is in the queues."""

from orchestrator.events import JobCancelled
from orchestrator.ids import group_of, job_id, names_group, names_run, run_of
from orchestrator.queues import Queues
from orchestrator.why import Fleet, why_batch, why_broken, why_group, why_job, why_run, why_server
from rollyard.errors import Conflict, NotFound
from rollyard.messages import (
    AgentServerStatus,
    Checkup,
    DeadJob,
    Explanation,
    JobRecord,
    JobState,
    JobView,
    ServerCondition,
)


class Operators:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def servers(self) -> tuple[AgentServerStatus, ...]:
        self._queues.store.check_answers()
        busy, conditions = self._queues.servers.busy_slots(), self._queues.servers.conditions()
        return tuple(
            AgentServerStatus(
                server_id=server.server_id,
                url=server.url,
                slots=server.slots,
                busy_slots=busy.get(server.server_id, 0),
                environments=server.environments,
                digest=server.digest,
                condition=conditions.get(server.server_id, ServerCondition()),
            )
            for server in self._queues.servers.registered()
        )

    def fleet(self) -> Fleet:
        return Fleet(
            servers=self.servers(),
            free_slots=self._queues.servers.free_slots(),
            standing=self._queues.jobs.standing(),
            serving=self._queues.weights.serving(),
        )

    def checkup(self) -> Checkup:
        self._queues.store.check_answers()
        return Checkup(
            storage=self._queues.store.describe(),
            stray_leases=self._queues.jobs.stray_leases(),
            events_waiting={
                run.settings.run_id: run.events_waiting
                for run in self._queues.runs.read_all().readable
            },
        )

    def jobs(
        self, run_id: str | None, state: JobState | None, limit: int, *, closed: bool
    ) -> tuple[JobRecord, ...]:
        """Running Jobs first, then parked, queued, dead and accepted ones."""
        self._queues.store.check_answers()
        found: list[JobRecord] = []
        order = (
            JobState.LEASED,
            JobState.PARKED,
            JobState.QUEUED,
            JobState.DEAD,
            JobState.ACCEPTED,
        )
        for run in self._runs(run_id, closed=closed):
            for one in order if state is None else (state,):
                found += self._queues.jobs.records(run, one, limit - len(found))
                if len(found) >= limit:
                    return tuple(found)
        return tuple(found)

    def dead(self, run_id: str | None, *, closed: bool) -> tuple[DeadJob, ...]:
        runs = self._runs(run_id, closed=closed)
        return tuple(dead for run in runs for dead in self._queues.jobs.dead(run))

    def _runs(self, run_id: str | None, *, closed: bool) -> list[str]:
        """The named Run, closed or not; without a name all Runs, closed ones only if `closed`."""
        if run_id is not None:
            return [run_id]
        hidden = set() if closed else self._queues.runs.closed_ids()
        return [run for run in self._queues.runs.ids() if run not in hidden]

    def cancel(self, job_id: str) -> None:
        """Drop the Job and its Group, which could never be complete without it. Raises `NotFound`,
        and `Conflict` for a Job that is dead or accepted."""
        job = self._queues.jobs.record(job_id)
        if job.state in (JobState.DEAD, JobState.ACCEPTED):
            raise Conflict(
                f"job {job_id!r} is {job.state}: there is nothing to cancel",
                fix="cancel one that is queued or leased; `rollyard jobs` lists them",
            )
        self._queues.events.tell(run_of(job_id), JobCancelled(job_id=job_id))

    def requeue(self, job_id: str) -> str:
        """Feed the Prompt of a dead Job anew, and return the id of the new Group. Raises `NotFound`
        and `Conflict`."""
        if self._queues.runs.read(run_of(job_id)).state.closed:
            raise Conflict(f"run {run_of(job_id)!r} is closed: nothing of it will run again")
        return self._queues.tasks.requeue(job_id)

    def views(self, name: str, limit: int) -> tuple[JobView, ...]:
        """The view of a Job, or of the first members of a Group `<run>/<group>`. Raises
        `NotFound`."""
        run = self._queues.runs.read(run_of(name))
        jobs = self._queues.jobs
        records = jobs.members(name, limit) if names_group(name) else [jobs.record(name)]
        fleet = self.fleet()
        views = []
        for record in records:
            prompt, result = self._queues.jobs.contents(record.job_id)
            reason = why_job(record, run, fleet)
            views.append(JobView(job=record, reason=reason, prompt=prompt, result=result))
        return tuple(views)

    def why(self, name: str) -> Explanation:
        """The reason why a Job, a Group `<run>/<group>`, a Run, a Batch or a server waits. Raises
        `NotFound`."""
        fleet = self.fleet()
        reason = self._why_whole(name, fleet) if names_run(name) else self._why_part(name, fleet)
        if not reason:
            raise NotFound(
                f"nothing that waits is called {name!r}",
                fix="name a run, a batch requested, an agent server, an unfinished group as "
                "<run>/<group>, or a job as <run>/<group>/<member>",
            )
        return Explanation(id=name, reason=reason)

    def _why_part(self, name: str, fleet: Fleet) -> str:
        run = self._queues.runs.read(run_of(name))
        if not names_group(name):
            return why_job(self._queues.jobs.record(name), run, fleet)
        group = run.state.open.get(group_of(name))
        unfinished = [] if group is None else group.unfinished()[:1]
        records = [
            self._queues.jobs.record(job_id(run_of(name), group_of(name), n)) for n in unfinished
        ]
        return why_group(group_of(name), run, records, fleet)

    def _why_whole(self, name: str, fleet: Fleet) -> str:
        every = self._queues.runs.read_all()
        runs = {run.settings.run_id: run for run in every.readable}
        if name in every.broken:
            return why_broken(every.broken[name])
        if name in runs:
            return why_run(runs[name], fleet)
        for server in fleet.servers:
            if server.server_id == name:
                return why_server(server, runs.values(), fleet.serving)
        for run in runs.values():
            if name in run.state.outstanding:
                return why_batch(name, run, fleet)
        return ""
