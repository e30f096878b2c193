"""Explanations of every wait, each in one true sentence, as pure functions of the state.

Every wait of a Run, Group, Job, agent server or Batch has its sentence here, in `why_batch`,
`why_placement` or `why_weights`, and nowhere else.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from orchestrator.demand import prompts_to_feed
from orchestrator.kinds import JobKind, can_run
from orchestrator.queues.jobs import Standing
from orchestrator.queues.runs import Run
from orchestrator.queues.servers import Known, Offer
from orchestrator.queues.weights import Serving
from orchestrator.why_batch import trainer_gone, why_not_complete
from orchestrator.why_placement import why_kind_is_unoffered, why_no_more_slots, why_unoffered
from orchestrator.why_weights import why_run_is_not_leased, why_server_gets_nothing
from rollyard.errors import RollyardError
from rollyard.messages import (
    AgentServerStatus,
    AttemptRecord,
    JobRecord,
    JobState,
    ServerState,
)

SILENT_SECONDS = 5.0
"""Time without a heartbeat after which an agent server counts as silent."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The state that all Runs share: agent servers, Slots and weights."""

    servers: tuple[AgentServerStatus, ...]
    offer: Offer = Offer()
    standing: Standing = Standing(leased=0, parked={})
    serving: Serving = Serving()
    known: Known = Known()

    @property
    def free_slots(self) -> int:
        """Number of Slots that are offered to Jobs now."""
        return self.offer.free_slots

    @property
    def slots(self) -> int:
        """Number of Slots that are neither lost nor lent."""
        return sum(server.working_slots for server in self.servers)


def why_run(run: Run, fleet: Fleet) -> str:
    """The reason why the Run's Batch is not complete, or what the Run waits for without one."""
    wanted, unoffered = prompts_to_feed(run, fleet.offer), why_unoffered(run, fleet.servers)
    return why_not_complete(run, why_no_slot(fleet), unoffered, wanted, fleet.serving)


def why_broken(error: RollyardError) -> str:
    """The reason why a Run that cannot be read does not advance."""
    return f"it cannot be read: {error}"


def why_batch(batch_id: str, run: Run, fleet: Fleet) -> str:
    """The reason why a requested Batch is not delivered, or not acknowledged."""
    state = run.state
    if batch_id in state.delivered:
        waits = f"batch {batch_id!r} is complete and waits for the trainer to acknowledge it"
        return waits + trainer_gone(run)
    if state.wanted and batch_id != state.wanted[0].batch_id:
        return f"it is sampled after batch {state.wanted[0].batch_id!r}: {why_run(run, fleet)}"
    return why_run(run, fleet)


def why_no_slot(fleet: Fleet) -> str:
    """The reason why no Slot can become free by itself; empty if one can."""
    return why_no_server(fleet) or _why_all_parked(fleet)


def why_no_server(fleet: Fleet) -> str:
    """The reason why no agent server takes Jobs; empty if one does."""
    if not fleet.servers:
        return "no agent server has registered"
    held = [why_held(server) for server in fleet.servers]
    if not all(held) or any(s.condition.state is ServerState.PROBATION for s in fleet.servers):
        return ""
    return "no agent server takes jobs: " + ", ".join(
        f"{server.server_id} {why}" for server, why in zip(fleet.servers, held, strict=True)
    )


def _why_all_parked(fleet: Fleet) -> str:
    """The sentence for parked Jobs that hold all Slots; empty if a Slot is free or will be."""
    standing = fleet.standing
    if fleet.free_slots or not standing.parked or standing.leased > sum(standing.parked.values()):
        return ""
    return f"no slot becomes free{_parked(standing.parked)}"


def _parked(jobs: Mapping[str, int]) -> str:
    """A clause on parked Jobs, which hold Slots without running; it follows a wait for a Slot."""
    runs = ", ".join(
        f"{count} of run {run!r}" if run else f"{count} of other runs"
        for run, count in sorted(jobs.items())
        if count
    )
    if not runs:
        return ""
    return f": parked jobs keep theirs until their trainer wants its next batch ({runs})"


def why_held(server: AgentServerStatus) -> str:
    """A clause on why the server's Slots are not offered, to follow its name; empty if they are."""
    condition = server.condition
    if condition.seen_seconds_ago > SILENT_SECONDS:
        return f"has not been heard of for {condition.seen_seconds_ago:.0f} s"
    if server.working_slots <= 0:
        why = condition.lost.reason or "all are lent to callers of its door"
        return f"can run no job: {why}"
    failures = f"{len(condition.failing_jobs)} jobs in a row failed there"
    if condition.unreached:
        failures = _why_unreached(server)
    match condition.state:
        case ServerState.QUARANTINED if condition.let_back_in_seconds:
            seconds = condition.let_back_in_seconds
            return f"is quarantined for another {seconds:.0f} s because {failures}"
        case ServerState.QUARANTINED:
            return "is quarantined until its next heartbeat offers one slot"
        case ServerState.PROBATION:
            return f"is on probation with one slot because {failures}"
        case ServerState.DRAINING:
            return "is draining: an operator asked it to leave"
        case ServerState.SERVING:
            return ""


def _why_unreached(server: AgentServerStatus) -> str:
    row = server.condition.unreached
    last = "the last delivery" if row == 1 else f"the last {row} deliveries"
    return f"{last} did not reach {server.url}, though it calls: may the orchestrator go there?"


def why_server(server: AgentServerStatus, runs: Iterable[Run], fleet: Fleet) -> str:
    """The reason why the server does not run more Jobs than it does."""
    reason, condition = _why_not_more(server, tuple(runs), fleet), server.condition
    lent = f"{condition.lent} of its slots are lent to callers of its door"
    more = (condition.lost.reason, lent if condition.lent else "")
    return "; ".join((reason, *(each for each in more if each not in reason)))


def _why_not_more(server: AgentServerStatus, runs: Sequence[Run], fleet: Fleet) -> str:
    """The reason as far as it concerns Slots that are neither lost nor lent."""
    name, seen = server.server_id, server.condition.seen_seconds_ago
    if seen > SILENT_SECONDS:
        return (
            f"{name} has not been heard of for {seen:.0f} s; its jobs go to others if it stays so"
        )
    held = why_held(server)
    parked = _parked({run.settings.run_id: run.counters.jobs_parked for run in runs})
    if server.condition.unreached and not held:
        held = f"takes no jobs: {_why_unreached(server)}"
    if held:
        return f"{name} {held}; {server.busy_slots} of {server.slots} slots run a job{parked}"
    slots = server.working_slots
    if server.busy_slots >= slots:
        return f"all {slots} slots of {name} run a job{parked}"
    free = slots - server.busy_slots
    gets_nothing = why_server_gets_nothing(server.digest, fleet.serving)
    if gets_nothing:
        return f"{name} has {free} free slots, and gets no jobs: {gets_nothing}"
    sampled = [run for run in runs if run.state.wanted]
    queued = sum(run.counters.jobs_queued for run in sampled)
    if not queued:
        return f"{name} has {free} free slots, and no job of a run that wants a batch is queued"
    waiting = sum(run.backlog.jobs.get(fleet.offer.classes.get(name, ""), 0) for run in sampled)
    if not waiting:
        return (
            f"{name} has {free} free slots, and can run none of the {queued} jobs that are queued"
        )
    return f"{name} has {free} free slots, and {waiting} jobs are about to be leased"


def why_job(job: JobRecord, run: Run, fleet: Fleet) -> str:
    """The reason why the Job has no Result yet, or what its Result waits for."""
    match job.state:
        case JobState.LEASED:
            return _why_leased(job.attempts[-1], fleet)
        case JobState.PARKED:
            server = job.attempts[-1].server_id
            return (
                f"it waits parked on {server} for the trainer's next batch: {why_run(run, fleet)}"
            )
        case JobState.ACCEPTED:
            return f"it has its result, with reward {job.reward:g}"
        case JobState.DEAD:
            why = job.attempts[-1].reason if job.attempts else "its attempts are used up"
            return f"it is dead: {why}; `rollyard requeue {job.job_id}` feeds its prompt anew"
        case JobState.QUEUED:
            return _why_queued(job, run, fleet)


def _why_leased(attempt: AttemptRecord, fleet: Fleet) -> str:
    since = datetime.fromtimestamp(attempt.leased_at, UTC).strftime("%H:%M:%S UTC")
    running = f"attempt {attempt.attempt} runs on {attempt.server_id} since {since}"
    for server in fleet.servers:
        ahead = server.condition.jobs_ahead
        if server.server_id == attempt.server_id and ahead:
            running = (
                f"attempt {attempt.attempt} is on {attempt.server_id} since {since}, where "
                f"{ahead} of {server.busy_slots + ahead} jobs wait for a free slot"
            )
        seen = server.condition.seen_seconds_ago
        if server.server_id == attempt.server_id and seen > SILENT_SECONDS:
            return f"{running}, but that server has not been heard of for {seen:.0f} s"
    return running


def _why_queued(job: JobRecord, run: Run, fleet: Fleet) -> str:
    if not run.state.wanted:
        return f"its run is held: {why_run(run, fleet)}"
    before = job.queue_position or 0
    place = f"{before} jobs of its run and kind are before it"
    kind = JobKind(job.environment, job.tags)
    able = tuple(server for server in fleet.servers if can_run(server, kind))
    blocked = (
        why_run_is_not_leased(run, fleet.serving)
        or why_kind_is_unoffered(kind, fleet.servers)
        or why_no_more_slots(run)
        or why_no_slot(msgspec.structs.replace(fleet, servers=able))
    )
    if blocked:
        return f"{blocked}; {place}"
    others = [server for server in able if server.server_id not in job.avoids]
    if job.avoids and any(server.condition.state is ServerState.SERVING for server in others):
        servers = " and ".join(sorted(job.avoids))
        return (
            f"it failed on {servers} and waits for a slot of another server, for "
            f"{job.avoids_seconds:.0f} s at most; {place}"
        )
    return f"{_why_no_slot_of(able, kind, fleet)}; {place}"


def _why_no_slot_of(able: Sequence[AgentServerStatus], kind: JobKind, fleet: Fleet) -> str:
    """The reason why no Slot of the servers that are able to run Jobs of this kind takes one."""
    free = sum(fleet.offer.free.get(server.server_id, 0) for server in able)
    if free:
        return f"{free} slots are free and about to be leased"
    slots = sum(server.working_slots for server in able)
    of = f" of servers that have {kind}" if len(able) < len(fleet.servers) else ""
    return f"none of the {slots} slots{of} is free{_parked(fleet.standing.parked)}"


def why_group(group_id: str, run: Run, members: Iterable[JobRecord], fleet: Fleet) -> str:
    """The reason why a Group has not reached the trainer; empty if it was dropped or never fed.

    `members` has the first unfinished member, if there is one.
    """
    state = run.state
    if group_id in state.open:
        return _why_open(group_id, run, members, fleet)
    if group_id not in state.complete:
        return ""
    for batch_id, chosen in state.delivered.items():
        if any(each.group_id == group_id for each in chosen):
            return f"it is in batch {batch_id!r}, which waits for the trainer's acknowledgement"
    if any(each.group_id == group_id for each in state.ready):
        return f"it is effective and waits for its batch: {why_run(run, fleet)}"
    return "it is effective, and groups fed before it come before it: launch_order"


def _why_open(group_id: str, run: Run, members: Iterable[JobRecord], fleet: Fleet) -> str:
    group, most = run.state.open[group_id], run.settings.group_size
    done = f"{len(group.done)} of {most} members have their result"
    if group.asked < run.settings.members:
        done += f", of {group.asked} begun: the others are begun if the group may be effective"
    unfinished = next((job for job in members if job.state is not JobState.ACCEPTED), None)
    if unfinished is None:
        return f"{done}; the collector has {run.events_waiting} events to conclude"
    return f"{done}; of {unfinished.job_id}: {why_job(unfinished, run, fleet)}"
