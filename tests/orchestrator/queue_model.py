"""What the queues must do, as plain dictionaries: the model of the state machine.

- Knows nothing of keys, scripts or locks; every move is a few lines, to be read by themselves.
- A Job is in one place: tasks, holders, accepted, dead or dropped.
- Everything that concerns servers is said of each by itself: the model has no classes of servers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orchestrator.kinds import JobKind
from orchestrator.queues.limits import MAX_SERVERS_LOST
from rollyard.messages import Lease, Outcome, Receipt

MAX_FAILURES = 3


class RunModel:
    def __init__(self) -> None:
        self.open = False
        self.fed: dict[str, list[str]] = {}
        """Group -> its Jobs; a Group that was dropped has none."""
        self.kinds: dict[str, JobKind] = {}
        """Group -> the kind of its Jobs, in the order in which they were fed."""
        self.tasks: list[str] = []
        """Queued Jobs; those of one kind as they wait."""
        self.holders: dict[str, Lease] = {}
        self.parked: set[str] = set()
        self.attempts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.charged = 0
        self.lost: dict[str, set[str]] = {}
        """Job -> the servers it was lost with."""
        self.accepted: dict[str, int] = {}
        """Job -> the attempt that was accepted, and not withdrawn; also of Groups dropped since."""
        self.dead: set[str] = set()
        self.dropped: set[str] = set()
        self.events: list[str] = []
        self.concluded = 0
        self.carried_over = 0

    def living_groups(self) -> list[str]:
        return [group for group, jobs in self.fed.items() if jobs]

    def unfinished(self) -> list[str]:
        """Jobs that wait or run, oldest Group first."""
        jobs = [job for group in self.fed.values() for job in group]
        return [job for job in jobs if job in self.tasks or job in self.holders]

    def kind_of(self, job: str) -> JobKind:
        return self.kinds[job.split("/")[1]]

    def waiting(self) -> dict[JobKind, list[str]]:
        """The queued Jobs by kind, that one first whose first Job's Group was fed first."""
        by_kind: dict[JobKind, list[str]] = {}
        for job in self.tasks:
            by_kind.setdefault(self.kind_of(job), []).append(job)
        fed = list(self.kinds)
        return dict(sorted(by_kind.items(), key=lambda each: fed.index(each[1][0].split("/")[1])))

    def end(self, job: str) -> Lease | None:
        """The Job's Lease ends; None if it has none."""
        self.parked.discard(job)
        return self.holders.pop(job, None)

    def stop(self, jobs: Iterable[str]) -> list[Lease]:
        ended = [lease for lease in map(self.end, list(jobs)) if lease is not None]
        self.events += ["AttemptEnded"] * len(ended)
        return ended

    def carry_over(self) -> None:
        self.carried_over += len(self.tasks) + len(self.holders)

    def submitted(self) -> int:
        return sum(
            len(place)
            for place in (self.tasks, self.holders, self.accepted, self.dead, self.dropped)
        )


class Abilities(NamedTuple):
    """What a server has, and so the Jobs that it can run."""

    environments: tuple[str, ...]
    tags: tuple[str, ...]

    def fit(self, kind: JobKind) -> bool:
        return kind.environment in self.environments and set(kind.tags) <= set(self.tags)


class QueueModel:
    def __init__(self, run_ids: Iterable[str]) -> None:
        self.runs = {run_id: RunModel() for run_id in run_ids}
        self.sizes: dict[str, int] = {}
        self.abilities: dict[str, Abilities] = {}
        self.ahead: dict[str, int] = {}
        self.free: list[str] = []
        self.spare: list[str] = []
        self.slots: dict[str, Lease | None] = {}
        """Slot -> None when free, who occupies it otherwise; absent when suspended."""
        self.leases: list[Lease] = []
        """Every Lease ever given."""

    def run_of(self, lease: Lease) -> RunModel:
        return self.runs[lease.job_id.split("/")[0]]

    def holds(self, lease: Lease) -> bool:
        return self.run_of(lease).holders.get(lease.job_id) == lease

    def slots_of(self, server_id: str) -> list[str]:
        places = self.sizes.get(server_id, 0) + self.ahead.get(server_id, 0)
        return [f"{server_id}#{index}" for index in range(places)]

    def load(self, server_id: str) -> int:
        return sum(bool(self.slots.get(slot)) for slot in self.slots_of(server_id))

    def submit(self, run_id: str, group: str, kind: JobKind, size: int) -> bool:
        run = self.runs[run_id]
        if group in run.fed:
            return False
        run.kinds[group] = kind
        run.fed[group] = [f"{run_id}/{group}/{member}" for member in range(size)]
        run.tasks += run.fed[group]
        run.events.append("PromptFed")
        return True

    def job_for(self, run: RunModel, server_id: str) -> str | None:
        """The first Job of the Run that the server may have."""
        waiting = run.waiting() if run.open else {}
        for kind in filter(self.abilities[server_id].fit, waiting):
            able = {server for server, has in self.abilities.items() if has.fit(kind)}
            for job in waiting[kind]:
                lost = run.lost.get(job, set())
                if server_id not in lost or able - {server_id} <= lost:
                    return job
        return None

    def work_waits(self, server_id: str) -> bool:
        return any(self.job_for(run, server_id) for run in self.runs.values())

    def queued_for(self, run: RunModel, server_id: str) -> int:
        """Number of the Run's queued Jobs that the server can run."""
        return sum(self.abilities[server_id].fit(run.kind_of(job)) for job in run.tasks)

    def unoffered(self, run: RunModel) -> list[str]:
        """The Run's queued Jobs that no server can run."""
        servers = self.abilities.values()
        return [job for job in run.tasks if not any(has.fit(run.kind_of(job)) for has in servers)]

    def much_work_waits(self, server_id: str) -> bool:
        jobs = sum(self.queued_for(run, server_id) for run in self.runs.values() if run.open)
        environments = set(self.abilities[server_id].environments)
        return jobs >= sum(
            ahead
            for other, ahead in self.ahead.items()
            if environments & set(self.abilities[other].environments)
        )

    def next_slots(self) -> Iterator[str]:
        """The first on offer of each ability, whose server may have a Job that waits, and no other
        such server is less able."""
        spare = [slot for slot in self.spare if self.much_work_waits(slot.split("#")[0])]
        for offered in (self.free, spare):
            first: dict[Abilities, str] = {}
            for slot in offered:
                if self.work_waits(slot.split("#")[0]):
                    first.setdefault(self.abilities[slot.split("#")[0]], slot)
            least = min(map(how_able, first), default=None)
            yield from (slot for has, slot in first.items() if how_able(has) == least)
            if first:
                return

    def lease(self, lease: Lease) -> None:
        """Check a Lease that was given against the heads of both queues, and take it over."""
        assert lease.slot in self.next_slots()
        (self.free if lease.slot in self.free else self.spare).remove(lease.slot)
        self._occupy(lease)

    def _occupy(self, lease: Lease) -> None:
        run = self.run_of(lease)
        assert run.open
        assert self.job_for(run, lease.server_id) == lease.job_id
        run.tasks.remove(lease.job_id)
        assert lease.slot in self.slots_of(lease.server_id)
        run.attempts[lease.job_id] += 1
        assert run.attempts[lease.job_id] == lease.attempt
        run.holders[lease.job_id] = lease
        self.slots[lease.slot] = lease
        self.leases.append(lease)

    def report(self, lease: Lease, outcome: Outcome) -> Receipt:
        """The Slot is free, unless `take_next` follows."""
        freed = self.slots.get(lease.slot) == lease
        receipt = self._settle(lease, outcome)
        if freed:
            self._free(lease.slot)
        return receipt

    def brings_next(self, lease: Lease, outcome: Outcome) -> bool:
        """Whether the answer to this report of a held Lease has the Slot's next Job."""
        occupies = self.slots.get(lease.slot) == lease and self.holds(lease)
        server = lease.server_id
        if not occupies or outcome is not Outcome.COMPLETED or not self.work_waits(server):
            return False
        return self.load(server) <= self.sizes[server] or self.much_work_waits(server)

    def take_next(self, lease: Lease) -> None:
        """The Slot that a report has just freed takes its next Job at once."""
        (self.free if lease.slot in self.free else self.spare).remove(lease.slot)
        self._occupy(lease)

    def occupant(self, slot: str) -> Lease | None:
        lease = self.slots.get(slot)
        return lease if lease is not None and self.holds(lease) else None

    def _settle(self, lease: Lease, outcome: Outcome) -> Receipt:
        run = self.run_of(lease)
        if not self.holds(lease):
            group = lease.job_id.split("/")[1]
            known = run.accepted.get(lease.job_id) == lease.attempt and run.fed[group]
            return Receipt.DUPLICATE if known else Receipt.STALE
        run.end(lease.job_id)
        match outcome:
            case Outcome.COMPLETED:
                run.accepted[lease.job_id] = lease.attempt
                run.events.append("ResultAccepted")
                return Receipt.ACCEPTED
            case Outcome.CANCELLED:
                run.events.append("AttemptEnded")
                run.tasks.insert(0, lease.job_id)
                return Receipt.REQUEUED
            case Outcome.INFRA_FAILED:
                return self._charge(lease, lost=False)

    def give_back(self, lease: Lease) -> None:
        if self.slots.get(lease.slot) == lease:
            del self.slots[lease.slot]
        if self.holds(lease):
            self._requeue(lease)

    def overdue(self, lease: Lease) -> None:
        """Its deadline passed, while its server lives."""
        self.run_of(lease).end(lease.job_id)
        del self.slots[lease.slot]
        self._charge(lease, lost=True)

    def register(self, server_id: str, size: int, ahead: int, has: Abilities) -> None:
        self.silent(server_id)
        self.sizes[server_id], self.ahead[server_id] = size, ahead
        self.abilities[server_id] = has
        for slot in self.slots_of(server_id):
            self._free(slot)

    def silent(self, server_id: str) -> None:
        for lease in self._forget(server_id):
            self.run_of(lease).end(lease.job_id)
            self._charge(lease, lost=True)

    def leave(self, server_id: str) -> None:
        for lease in self._forget(server_id):
            self._requeue(lease)

    def heartbeat(self, server_id: str, leases: list[Lease]) -> tuple[list[Lease], list[Lease]]:
        """Returns those to stop, and those to park."""
        running = {lease.slot for lease in leases}
        for slot in self.slots_of(server_id):
            occupant = self.slots.get(slot)
            lost = slot not in self.slots or (occupant is not None and not self.holds(occupant))
            if slot not in running and lost:
                self._free(slot)
        held = [lease for lease in leases if self.holds(lease)]
        parked = [lease for lease in held if lease.job_id in self.run_of(lease).parked]
        return [lease for lease in leases if lease not in held], parked

    def open(self, run_id: str) -> list[Lease]:
        """Returns the Leases that go on."""
        run = self.runs[run_id]
        run.open = True
        resumed = [run.holders[job] for job in run.parked]
        run.parked.clear()
        return resumed

    def hold_and_park(self, run_id: str) -> list[Lease]:
        """Returns the Leases parked."""
        run = self.runs[run_id]
        run.open = False
        run.carry_over()
        parked = [job for job in run.holders if job not in run.parked]
        run.parked |= set(parked)
        return [run.holders[job] for job in parked]

    def enqueue(self, run_id: str, group: str, members: int) -> list[str]:
        """Returns the Jobs that were added."""
        run = self.runs[run_id]
        jobs = run.fed[group]
        added = [f"{run_id}/{group}/{member}" for member in range(len(jobs), members)]
        jobs += added
        run.tasks = added + run.tasks
        return added

    def restart(self, run_id: str, jobs: list[str]) -> None:
        run = self.runs[run_id]
        for job in jobs:
            del run.accepted[job]
        run.tasks = jobs + run.tasks

    def cancel(self, run_id: str, jobs: list[str]) -> list[Lease]:
        """Returns the Leases ended."""
        run = self.runs[run_id]
        ended = run.stop(jobs)
        waiting = [job for job in jobs if job in run.tasks]
        run.tasks = [job for job in run.tasks if job not in waiting]
        run.dropped |= {*waiting, *(lease.job_id for lease in ended)}
        return ended

    def hold_and_requeue_all(self, run_id: str) -> list[Lease]:
        """Returns the Leases ended."""
        run = self.runs[run_id]
        run.open = False
        run.carry_over()
        return self.requeue(run_id, list(run.holders))

    def requeue(self, run_id: str, jobs: list[str]) -> list[Lease]:
        """Returns the Leases ended."""
        run = self.runs[run_id]
        ended = run.stop(jobs)
        run.tasks = [lease.job_id for lease in ended] + run.tasks
        return ended

    def drop(self, run_id: str, group: str) -> list[Lease]:
        """Returns the Leases ended."""
        run = self.runs[run_id]
        jobs, run.fed[group] = run.fed[group], []
        return self.cancel(run_id, jobs)

    def _free(self, slot: str) -> None:
        assert slot not in (*self.free, *self.spare)
        self.slots[slot] = None
        server = slot.split("#")[0]
        offered = sum(other.split("#")[0] == server for other in self.free)
        fits = offered + self.load(server) < self.sizes[server]
        (self.free if fits else self.spare).append(slot)

    def _forget(self, server_id: str) -> list[Lease]:
        """Forget a server's Slots; returns the Leases it still held."""
        slots = self.slots_of(server_id)
        occupants = [self.slots.pop(slot, None) for slot in slots]
        self.free = [slot for slot in self.free if slot not in slots]
        self.spare = [slot for slot in self.spare if slot not in slots]
        self.sizes.pop(server_id, None)
        self.ahead.pop(server_id, None)
        self.abilities.pop(server_id, None)
        return [lease for lease in occupants if lease is not None and self.holds(lease)]

    def _requeue(self, lease: Lease) -> None:
        run = self.run_of(lease)
        run.end(lease.job_id)
        run.tasks.insert(0, lease.job_id)

    def _charge(self, lease: Lease, *, lost: bool) -> Receipt:
        run, job = self.run_of(lease), lease.job_id
        run.charged += 1
        run.events.append("AttemptEnded")
        servers = run.lost.setdefault(job, set())
        if lost and lease.server_id not in servers:
            servers.add(lease.server_id)
            enough = len(servers) >= MAX_SERVERS_LOST
        else:
            run.failures[job] += 1
            enough = run.failures[job] >= MAX_FAILURES
        if not enough:
            run.tasks.insert(0, job)
            return Receipt.REQUEUED
        run.dead.add(job)
        run.events.append("JobDied")
        return Receipt.DEAD


def how_able(has: Abilities) -> tuple[int, int]:
    """A tag says more than any number of environments."""
    return len(has.tags), len(has.environments)
