"""What one Run owns in the in-memory queues."""

from collections import Counter, deque

import msgspec

from orchestrator.events import AnyEvent, group_and_member, job_id
from orchestrator.queues.contract import Run
from orchestrator.queues.operations import (
    MOST_ATTEMPTS_KEPT,
    MOST_DEAD_KEPT,
    MOST_GONE_KNOWN,
    MOST_REASON_CHARACTERS,
    MOST_SERVERS_LOST,
)
from orchestrator.sampler import SamplerState
from rollyard.errors import NotFound
from rollyard.messages import (
    Attempt,
    AttemptOutcome,
    Counters,
    DeadJob,
    Group,
    Job,
    JobRecord,
    JobState,
    Lease,
    Prompt,
    Result,
    RunSettings,
)


class RunRecord:
    """The fields are named as the Run's Redis keys. Called with the lock of its queues held."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.sampler = SamplerState()
        self.open = False
        self.fed: set[str] = set()
        self.gone: deque[str] = deque()
        self.tasks: deque[str] = deque()
        self.prompts: dict[str, Prompt] = {}
        self.attempts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.lost: dict[str, set[str]] = {}
        self.leased_at: dict[str, float] = {}
        self.accepted_at: dict[str, float] = {}
        self.history: dict[str, list[Attempt]] = {}
        self.dead: dict[str, DeadJob] = {}
        self.holders: dict[str, Lease] = {}
        self.results: dict[str, Result] = {}
        self.events: deque[AnyEvent] = deque()
        self.concluded = 0
        self.batches: dict[str, tuple[str, ...]] = {}
        self.counts: Counter[str] = Counter()
        self.rewards_sum = 0.0
        self.news = False

    def view(self) -> Run:
        return Run(
            self.settings, copied(self.sampler), self._counters(), self.concluded, len(self.events)
        )

    def jobs(self, group: str) -> list[str]:
        """The ids of the Group's Jobs, in member order."""
        settings = self.settings
        return [job_id(settings.run_id, group, m) for m in range(settings.group_size)]

    def job(self, job: str) -> Job:
        group_id, member = group_and_member(job)
        return Job(
            job_id=job,
            run_id=self.settings.run_id,
            group_id=group_id,
            member=member,
            prompt=self.prompts[group_id],
            sampling=self.settings.sampling,
            limits=self.settings.limits,
        )

    def queue(self, prompt: Prompt) -> None:
        """Put the Jobs of a new Group on the task queue."""
        self.fed.add(prompt.prompt_id)
        self.prompts[prompt.prompt_id] = prompt
        jobs = self.jobs(prompt.prompt_id)
        self.tasks.extend(jobs)
        self.counts["submitted"] += len(jobs)

    def accept(self, result: Result, at: float) -> None:
        assert result.reward is not None
        self.accepted_at[result.lease.job_id] = at
        self.results[result.lease.job_id] = result
        self.counts["accepted"] += 1
        self.rewards_sum += result.reward

    def note(self, lease: Lease, at: float, outcome: AttemptOutcome, reason: str) -> None:
        """Note how an attempt ended that was not accepted."""
        attempts = self.history.setdefault(lease.job_id, [])
        attempts.append(
            Attempt(
                attempt=lease.attempt,
                server_id=lease.server_id,
                leased_at=self.leased_at.pop(lease.job_id, 0.0),
                ended_at=at,
                outcome=outcome,
                reason=reason[:MOST_REASON_CHARACTERS],
            )
        )
        del attempts[:-MOST_ATTEMPTS_KEPT]

    def charge(self, lease: Lease, at: float, outcome: AttemptOutcome, reason: str) -> bool:
        """Count a lost or failed attempt; True if it was the Job's last."""
        job = lease.job_id
        self.counts["attempts_failed"] += 1
        self.note(lease, at, outcome, reason)
        lost = self.lost.setdefault(job, set())
        if outcome is AttemptOutcome.LOST and lease.server_id not in lost:
            lost.add(lease.server_id)
            enough = len(lost) >= MOST_SERVERS_LOST
        else:
            self.failures[job] += 1
            enough = self.failures[job] >= self.settings.max_infra_failures
        if enough:
            self.counts["dead"] += 1
            if len(self.dead) < MOST_DEAD_KEPT:
                prompt = self.prompts[group_and_member(job)[0]]
                self.dead[job] = DeadJob(job_id=job, died_at=at, reason=reason, prompt=prompt)
        return enough

    def record_of(self, job: str) -> JobRecord | None:
        """None if the Job is nowhere."""
        ended = tuple(self.history.get(job, ()))
        if job in self.holders:
            running = self._attempt(self.holders[job], AttemptOutcome.RUNNING, None)
            return JobRecord(job_id=job, state=JobState.LEASED, attempts=(*ended, running))
        if job in self.results:
            result = self.results[job]
            last = self._attempt(result.lease, AttemptOutcome.ACCEPTED, self.accepted_at[job])
            return JobRecord(
                job_id=job,
                state=JobState.ACCEPTED,
                attempts=(*ended, last),
                reward=result.reward,
            )
        if job in self.dead:
            return JobRecord(job_id=job, state=JobState.DEAD, attempts=ended)
        if job in self.tasks:
            position = self.tasks.index(job)
            return JobRecord(
                job_id=job, state=JobState.QUEUED, attempts=ended, queue_position=position
            )
        return None

    def _attempt(self, lease: Lease, outcome: AttemptOutcome, ended_at: float | None) -> Attempt:
        return Attempt(
            attempt=lease.attempt,
            server_id=lease.server_id,
            leased_at=self.leased_at[lease.job_id],
            outcome=outcome,
            ended_at=ended_at,
        )

    def forget(self, group: str) -> None:
        for job in self.jobs(group):
            if job in self.tasks:
                self.tasks.remove(job)
                self.counts["dropped"] += 1
            self.attempts.pop(job, None)
            self.failures.pop(job, None)
            self.lost.pop(job, None)
            self.leased_at.pop(job, None)
            self.accepted_at.pop(job, None)
            self.results.pop(job, None)
            if job not in self.dead:
                self.history.pop(job, None)
        self.prompts.pop(group, None)
        self.gone.append(group)
        if len(self.gone) > MOST_GONE_KNOWN:
            self.fed.discard(self.gone.popleft())

    def batch(self, batch_id: str) -> tuple[Group, ...]:
        groups = self.batches.get(batch_id, ())
        if not groups or not all(group in self.prompts for group in groups):
            raise NotFound(f"run {self.settings.run_id!r} has no batch {batch_id!r} to fetch")
        return tuple(
            Group(
                group_id=group,
                prompt=self.prompts[group],
                results=tuple(self.results[job] for job in self.jobs(group)),
            )
            for group in groups
        )

    def _counters(self) -> Counters:
        return Counters(
            groups_kept=self.sampler.groups_kept,
            groups_filtered=self.sampler.groups_filtered,
            groups_dead=self.sampler.groups_dead,
            groups_cancelled=self.sampler.groups_cancelled,
            jobs_submitted=self.counts["submitted"],
            jobs_queued=len(self.tasks),
            jobs_leased=len(self.holders),
            jobs_accepted=self.counts["accepted"],
            jobs_dead=self.counts["dead"],
            jobs_dropped=self.counts["dropped"],
            attempts_stopped=self.counts["attempts_stopped"],
            jobs_recycled=self.counts["recycled"],
            attempts_failed=self.counts["attempts_failed"],
            results_refused=self.counts["results_refused"],
            rewards_sum=self.rewards_sum,
        )


def copied(state: SamplerState) -> SamplerState:
    return msgspec.convert(msgspec.to_builtins(state), SamplerState)
