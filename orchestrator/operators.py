"""Questions and orders of operators. All state is in the queues."""

from orchestrator.events import JobCancelled
from orchestrator.gone_groups import gone_groups
from orchestrator.ids import group_of, job_id, names_group, names_run, run_of
from orchestrator.own_runs import own_servers, own_standing
from orchestrator.queues import Queues
from orchestrator.why import (
    Fleet,
    why_batch,
    why_broken,
    why_group,
    why_job,
    why_no_server,
    why_run,
    why_server,
)
from orchestrator.why_placement import why_kind_is_unoffered
from rollyard.errors import Conflict, NotFound
from rollyard.messages import (
    Checkup,
    DeadJobs,
    Explanation,
    GoneGroups,
    JobId,
    JobList,
    JobRecord,
    JobState,
    JobView,
    JobViews,
    MostJobs,
    Name,
    Requeued,
    ServerList,
)
from serving.access import check_run, the_caller

LISTED = (JobState.LEASED, JobState.PARKED, JobState.QUEUED, JobState.DEAD, JobState.ACCEPTED)
"""States of Jobs in the order in which they are listed."""


class Operators:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def servers(self) -> ServerList:
        """The agent servers and their health."""
        self._queues.store.check_answers()
        return ServerList(servers=self._queues.connection.ask(self._queues.servers.statuses()))

    def fleet(self) -> Fleet:
        """The state that all Runs share, as the caller may see it."""
        queues = self._queues
        servers, offer, known, serving, leased = queues.connection.ask_together(
            queues.servers.statuses(),
            queues.servers.offer(),
            queues.servers.known(),
            queues.weights.serving(),
            queues.jobs.leased(),
        )
        return Fleet(
            servers=own_servers(servers),
            offer=offer,
            standing=own_standing(queues.jobs.standing(leased)),
            serving=serving,
            known=known,
        )

    def why_nothing_runs(self) -> str:
        """The reason why no Run could make progress; empty if one could."""
        self._queues.store.check_answers()
        fleet, queued = self.fleet(), self._queues.tasks.queued()
        if blocked := why_no_server(fleet):
            return blocked
        if not self._queues.weights.nodes():
            return "no LLM node has registered"
        if fleet.standing.leased or not queued.first_unoffered or queued.jobs > queued.unoffered:
            return ""
        return why_kind_is_unoffered(queued.first_unoffered, fleet.servers)

    def checkup(self) -> Checkup:
        """Health of the queues, for `rollyard doctor`."""
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
        self,
        *,
        run: Name | None = None,
        state: JobState | None = None,
        limit: MostJobs = 100,
        closed: bool = False,
    ) -> JobList:
        """Jobs with their last attempts: running, parked, queued, dead and accepted ones. Without
        `run`, those of closed Runs only with `closed`. Of Groups that were dropped, the number."""
        self._queues.store.check_answers()
        found, gone = list[JobRecord](), list[GoneGroups]()
        for run_id in self._runs(run, closed=closed):
            for one in LISTED if state is None else (state,):
                if len(found) < limit:
                    found += self._queues.jobs.records(run_id, one, limit - len(found))
            if state is None:
                gone += gone_groups(self._queues.runs.read(run_id))
        return JobList(jobs=tuple(found), gone=tuple(gone))

    def dead(self, *, run: Name | None = None, closed: bool = False) -> DeadJobs:
        """Jobs that used up their attempts, with the reasons. Without `run`, those of closed Runs
        only with `closed`."""
        runs = self._runs(run, closed=closed)
        return DeadJobs(jobs=tuple(dead for one in runs for dead in self._queues.jobs.dead(one)))

    def _runs(self, run_id: str | None, *, closed: bool) -> list[str]:
        """The named Run, closed or not; without a name all that the caller may open, closed ones
        only if `closed`."""
        if run_id is not None:
            check_run(run_id)
            return [run_id]
        hidden = set() if closed else self._queues.runs.closed_ids()
        caller = the_caller()
        return [run for run in self._queues.runs.ids() if run not in hidden and caller.opens(run)]

    def cancel(self, job_id: JobId) -> None:
        """Drop the Job and its Group, which could never be complete without it. Raises `NotFound`,
        and `Conflict` for a Job that is dead or accepted."""
        job = self._queues.jobs.record(job_id)
        if job.state in (JobState.DEAD, JobState.ACCEPTED):
            raise Conflict(
                f"job {job_id!r} is {job.state}: there is nothing to cancel",
                fix="cancel one that is queued or leased; `rollyard jobs` lists them",
            )
        self._queues.events.tell(run_of(job_id), JobCancelled(job_id=job_id))

    def requeue(self, job_id: JobId) -> Requeued:
        """Feed a dead Job's Prompt anew. Raises `NotFound` and `Conflict`."""
        if self._queues.runs.read(run_of(job_id)).state.closed:
            raise Conflict(f"run {run_of(job_id)!r} is closed: nothing of it will run again")
        return Requeued(group_id=self._queues.tasks.requeue(job_id))

    def trajectories(self, name: str, *, limit: MostJobs = 16) -> JobViews:
        """Histories and trajectories of a Job, or of the first members of a Group `<run>/<group>`.
        Raises `NotFound`."""
        self._queues.store.check_answers()
        run = self._queues.runs.read(run_of(name))
        jobs = self._queues.jobs
        records = jobs.members(name, limit) if names_group(name) else [jobs.record(name)]
        fleet = self.fleet()
        views = []
        for record in records:
            prompt, result = jobs.contents(record.job_id)
            reason = why_job(record, run, fleet)
            views.append(JobView(job=record, reason=reason, prompt=prompt, result=result))
        return JobViews(jobs=tuple(views))

    def why(self, name: str) -> Explanation:
        """The reason why a Job, a Group `<run>/<group>`, a Run, a Batch or a server waits. Raises
        `NotFound`."""
        self._queues.store.check_answers()
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
        if the_caller().runs:  # a server, or a Batch of any Run, may have the name of the caller's
            return ""
        for server in fleet.servers:
            if server.server_id == name:
                return why_server(server, runs.values(), fleet)
        for run in runs.values():
            if name in run.state.outstanding:
                return why_batch(name, run, fleet)
        return ""
