"""What one Run owns in the in-memory queues."""

from collections import Counter, deque
from collections.abc import Container

from orchestrator.events import AnyEvent, Tried, group_and_member, job_id
from orchestrator.queues.accounts import FATES
from orchestrator.queues.contract import Run, no_such_batch
from orchestrator.queues.memory_stay import Stay
from orchestrator.queues.operations import (
    MOST_ATTEMPTS_KEPT,
    MOST_DEAD_KEPT,
    MOST_GONE_KNOWN,
    MOST_REASON_CHARACTERS,
    MOST_SERVERS_LOST,
)
from orchestrator.sampling.decisions import Chosen
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.messages import (
    Attempt,
    AttemptOutcome,
    BatchReport,
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
    SlotSeconds,
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
        self.rows: dict[str, Tried] = {}
        self.stays: dict[str, Stay] = {}
        """Of leased Jobs: with those below, `times` and `parked`."""
        self.leased_at: dict[str, float] = {}
        self.accepted_at: dict[str, float] = {}
        self.history: dict[str, list[Attempt]] = {}
        self.dead: dict[str, DeadJob] = {}
        self.holders: dict[str, Lease] = {}
        self.results: dict[str, Result] = {}
        self.events: deque[AnyEvent] = deque()
        self.concluded = 0
        self.window: tuple[float, float] | None = None
        self.batches: dict[str, tuple[Chosen, ...]] = {}
        self.reports: dict[str, BatchReport] = {}
        self.last_report: BatchReport | None = None
        self.counts: Counter[str] = Counter()
        self.rewards_sum = 0.0
        self.seconds = dict.fromkeys(FATES, 0.0)
        self.news = False
        self.settled = False

    def view(self) -> Run:
        return Run(
            self.settings,
            copied(self.sampler),
            self._counters(),
            self.concluded,
            len(self.events),
            self.last_report,
        )

    def jobs(self, group: str) -> list[str]:
        """The ids of all Jobs that the Group may come to have, in member order."""
        settings = self.settings
        return [job_id(settings.run_id, group, m) for m in range(settings.members)]

    def parked(self) -> list[str]:
        return [job for job, stay in self.stays.items() if stay.parked_since is not None]

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
        jobs = self.jobs(prompt.prompt_id)[: self.settings.first_members]
        self.tasks.extend(jobs)
        self.counts["submitted"] += len(jobs)
        self.counts["groups_fed"] += 1

    def end_stay(self, job: str, at: float) -> float:
        """The attempt is over; returns its seconds on the Slot."""
        stay = self.stays.pop(job)
        self.leased_at[job] = stay.leased_at
        return stay.seconds(at)

    def accept(self, result: Result, at: float) -> None:
        assert result.reward is not None
        self.accepted_at[result.lease.job_id] = at
        self.results[result.lease.job_id] = result
        self.counts["accepted"] += 1
        self.rewards_sum += result.reward

    def withdraw(self, job: str, at: float) -> bool:
        """Take an accepted Result back; False if there is none."""
        result = self.results.pop(job, None)
        if result is None:
            return False
        assert result.reward is not None
        del self.accepted_at[job]
        self.counts["accepted"] -= 1
        self.rewards_sum -= result.reward
        why = "its tokens were too old for the batch"
        self.note(result.lease, at, AttemptOutcome.WITHDRAWN, why)
        return True

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
            running = Attempt(
                attempt=self.holders[job].attempt,
                server_id=self.holders[job].server_id,
                leased_at=self.stays[job].leased_at,
                outcome=AttemptOutcome.RUNNING,
            )
            is_parked = self.stays[job].parked_since is not None
            state = JobState.PARKED if is_parked else JobState.LEASED
            return JobRecord(job_id=job, state=state, attempts=(*ended, running))
        if job in self.results:
            result = self.results[job]
            last = Attempt(
                attempt=result.lease.attempt,
                server_id=result.lease.server_id,
                leased_at=self.leased_at[job],
                ended_at=self.accepted_at[job],
                outcome=AttemptOutcome.ACCEPTED,
            )
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

    def forget(self, group: str) -> None:
        for job in self.jobs(group):
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

    def keep_batches(self, batch_ids: Container[str]) -> None:
        """Forget all others."""
        for batch_id in [batch_id for batch_id in self.batches if batch_id not in batch_ids]:
            del self.batches[batch_id], self.reports[batch_id]

    def batch(self, batch_id: str) -> tuple[Group, ...]:
        chosen = self.batches.get(batch_id, ())
        if not chosen or not all(each.group_id in self.prompts for each in chosen):
            raise no_such_batch(self.settings.run_id, batch_id)
        return tuple(
            Group(
                group_id=each.group_id,
                prompt=self.prompts[each.group_id],
                results=tuple(
                    self.results[job_id(self.settings.run_id, each.group_id, member)]
                    for member in each.members
                ),
            )
            for each in chosen
        )

    def _counters(self) -> Counters:
        return Counters(
            **self.sampler.fates(),
            groups_fed=self.counts["groups_fed"],
            jobs_submitted=self.counts["submitted"],
            jobs_queued=len(self.tasks),
            jobs_leased=len(self.holders),
            jobs_parked=len(self.parked()),
            jobs_accepted=self.counts["accepted"],
            jobs_dead=self.counts["dead"],
            jobs_dropped=self.counts["dropped"],
            attempts_stopped=self.counts["attempts_stopped"],
            jobs_recycled=self.counts["recycled"],
            attempts_failed=self.counts["attempts_failed"],
            results_refused=self.counts["results_refused"],
            rewards_sum=self.rewards_sum,
            slot_seconds=SlotSeconds(**self.seconds),
        )


def copied(state: SamplerState) -> SamplerState:
    return codec.decode(codec.encode(state), SamplerState)
