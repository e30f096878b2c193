"""The verdict on a run, from its histories alone: `check(directory)`.

- A Job is trained on, or its Group was filtered, died with a member, or was dropped at the close.
- A Result withdrawn for its age is no longer accepted; the next one of its Job takes its place.
- A Batch has no older tokens than was promised, and reports their ages.
- An attempt that was parked goes on, or ends.
- A Job runs only where its tags are.

Each violation is counted in the verdict, and has a sentence in `problems`.
"""

from collections import Counter
from pathlib import Path

import msgspec

from chaos import history, work
from chaos.ages import Parked, follow_parked, problems_with_ages
from chaos.history import Event
from chaos.memory import Growth, growth_by_kind
from chaos.trainer import JOURNAL, Trained, TrainedGroup
from orchestrator.ids import group_and_member
from rollyard.codec import learnt


class Verdict(msgspec.Struct, kw_only=True):
    jobs: int = 0
    accepted: int = 0
    lost: int = 0
    duplicates: int = 0
    invariant_violations: int = 0
    invariant_checks: int = 0
    batches: int = 0
    batches_redelivered: int = 0
    batches_wrong: int = 0
    batches_too_old: int = 0
    """Batches older than promised, or than they report."""
    batches_ahead: int = 0
    """Batches requested while the trainer trained on the one before."""
    feeds_restored: int = 0
    members_restarted: int = 0
    """Members sampled anew because their tokens were too old."""
    ages: dict[int, int] = {}
    """Staleness, in weight versions, -> number of trajectories."""
    parked: Parked = Parked()
    parked_for_ever: int = 0
    misplaced: int = 0
    """Attempts that ran on a server that lacks a tag of their Job."""
    dead: int = 0
    attempts_failed: int = 0
    leftovers: int = 0
    max_requeue_seconds: float = 0.0
    max_ready_seconds: float = 0.0
    """The longest time that a restarted orchestrator took to answer."""
    attempts_lost: int = 0
    """Attempts that ran on an agent server when it was killed."""
    memory: dict[str, Growth] = {}
    """Growth of each kind of process that lived long enough to be judged."""
    flat_memory: bool | None = None
    """Whether no kind of process grew; None if none lived long enough to be judged."""
    faults: dict[str, int] = {}
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        return not self.problems


def check(directory: Path) -> Verdict:
    """The verdict on the run of this directory. Raises `ValueError` for one that did not end."""
    trainer = list(history.read(directory / JOURNAL))
    observer = list(history.read(directory / "observer.jsonl"))
    driver = list(history.read(directory / "driver.jsonl"))
    trained = [
        msgspec.convert(each, learnt(Trained), strict=False) for each in _named(trainer, "trained")
    ]
    verdict = Verdict()
    _check_batches(verdict, trainer, trained)
    _check_ages(verdict, trainer, trained)
    agents = {path.stem: list(history.read(path)) for path in directory.glob("agent-*.jsonl")}
    _check_parked(verdict, agents)
    _check_places(verdict, agents)
    _check_jobs(verdict, trainer, trained)
    _check_conservation(verdict, observer, trainer)
    _check_end(verdict, driver)
    _measure(verdict, observer, driver)
    return verdict


def _named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


def _check_batches(verdict: Verdict, trainer: list[Event], trained: list[Trained]) -> None:
    """Check that each Batch is whole, was trained on once, and came with the same bytes each
    time."""
    times = Counter(batch.batch_id for batch in trained)
    digests: dict[str, set[str]] = {}
    for event in _named(trainer, "received"):
        digests.setdefault(event["batch_id"], set()).add(event["digest"])
    verdict.batches = len(times)
    verdict.batches_redelivered = len(_named(trainer, "received")) - len(digests)
    for batch_id, seen in digests.items():
        if len(seen) > 1 or times[batch_id] != 1:
            verdict.batches_wrong += 1
            verdict.problems.append(
                f"batch {batch_id} came in {len(seen)} versions, trained {times[batch_id]} times"
            )
    for batch in trained:
        if len(batch.groups) != batch.requested or not all(map(_is_whole, batch.groups)):
            verdict.batches_wrong += 1
            verdict.problems.append(f"batch {batch.batch_id} is not what was requested")


def _is_whole(group: TrainedGroup) -> bool:
    wanted = [(member, work.reward(group.number, member)) for member in range(work.GROUP_SIZE)]
    found = [(group_and_member(each.job_id)[1], each.reward) for each in group.members]
    return not work.is_hopeless(group.number) and found == wanted


def _check_ages(verdict: Verdict, trainer: list[Event], trained: list[Trained]) -> None:
    ages = Counter[int]()
    for batch in trained:
        ages.update(batch.said_ages)
        found = list(problems_with_ages(batch))
        verdict.batches_too_old += bool(found)
        verdict.problems += found
    verdict.ages = dict(sorted(ages.items()))
    verdict.batches_ahead = len(_named(trainer, "requested_ahead"))
    verdict.feeds_restored = len(_named(trainer, "feed_restored"))


def _check_parked(verdict: Verdict, agents: dict[str, list[Event]]) -> None:
    verdict.parked, problems = follow_parked(agents)
    verdict.parked_for_ever = len(problems)
    verdict.problems += problems


def _check_places(verdict: Verdict, agents: dict[str, list[Event]]) -> None:
    for server_id, events in agents.items():
        for event in _named(events, "misplaced"):
            verdict.misplaced += 1
            verdict.problems.append(f"{event['job']} ran on {server_id}, which lacks its tag")


def _check_jobs(verdict: Verdict, trainer: list[Event], trained: list[Trained]) -> None:
    """Compare what the trainer fed with what became of it."""
    (closed,) = _named(trainer, "closed")
    after = closed["after"]
    groups = [group for batch in trained for group in batch.groups]
    seen = Counter(member.job_id for group in groups for member in group.members)
    rows = Counter(group.number for group in groups)
    fed = [event["number"] for event in _named(trainer, "row")]
    doubled = sum(seen.values()) - len(seen) + sum(rows.values()) - len(rows)

    missing = sum(not work.is_hopeless(number) for number in set(fed)) - len(rows)
    filtered_missing = sum(map(work.is_hopeless, fed)) - after["groups_filtered"]
    excused = after["groups_dead"] + closed["ready_groups"] + closed["open_groups"]
    lost_groups = max(0, missing + filtered_missing - excused)
    lost_submissions = abs(len(fed) * work.GROUP_SIZE - after["jobs_submitted"])
    unfinished = after["jobs_queued"] + after["jobs_leased"]

    finished_groups = len(groups) + after["groups_filtered"] + closed["ready_groups"]
    max_accepted = finished_groups * work.GROUP_SIZE + (work.GROUP_SIZE - 1) * (
        after["groups_dead"] + closed["open_groups"]
    )
    verdict.jobs = after["jobs_submitted"]
    verdict.accepted = after["jobs_accepted"]
    verdict.dead = after["jobs_dead"]
    verdict.attempts_failed = after["attempts_failed"]
    verdict.members_restarted = after["members_restarted"]
    verdict.duplicates = doubled + max(0, after["jobs_accepted"] - max_accepted)
    verdict.lost = lost_groups * work.GROUP_SIZE + lost_submissions + unfinished
    if verdict.duplicates:
        verdict.problems.append(f"{verdict.duplicates} results were accepted or trained on twice")
    if verdict.lost:
        verdict.problems.append(
            f"{verdict.lost} jobs are lost: {missing} effective and {filtered_missing} hopeless "
            f"groups missing, {excused} of them excused, {lost_submissions} submissions, "
            f"{unfinished} unfinished"
        )


def _check_conservation(verdict: Verdict, observer: list[Event], trainer: list[Event]) -> None:
    seen = [event["counters"] for event in _named(observer, "counters")]
    (closed,) = _named(trainer, "closed")
    for counters in (*seen, closed["before"], closed["after"]):
        verdict.invariant_checks += 1
        places = ("queued", "leased", "accepted", "dead", "dropped")
        if counters["jobs_submitted"] != sum(counters[f"jobs_{place}"] for place in places):
            verdict.invariant_violations += 1
            verdict.problems.append(f"jobs are not conserved: {counters}")


def _check_end(verdict: Verdict, driver: list[Event]) -> None:
    """Check that the closed Run left nothing in Redis, that every Slot is free, and that every
    fault was carried out."""
    (ended,) = _named(driver, "ended")
    if ended["faults_left"]:
        verdict.problems.append(f"the run was over before {ended['faults_left']} of its faults")
    for place in ("leases", "holders", "tasks", "results", "prompts", "events"):
        verdict.leftovers += ended[place]
    verdict.leftovers += abs(ended["slots"] - ended["free_slots"])
    if verdict.leftovers:
        verdict.problems.append(f"the closed run left something behind: {ended}")


def _measure(verdict: Verdict, observer: list[Event], driver: list[Event]) -> None:
    requeues = [event["seconds"] for event in _named(observer, "requeued")]
    verdict.attempts_lost = len(requeues)
    verdict.max_requeue_seconds = round(max(requeues, default=0.0), 2)
    ready = [event["seconds"] for event in _named(driver, "orchestrator_back")]
    verdict.max_ready_seconds = round(max(ready, default=0.0), 2)
    _measure_memory(verdict, _named(observer, "memory"))
    kinds = Counter(event["event"] for event in driver)
    for other in ("started", "ended", "orchestrator_back", "redis_back"):
        kinds.pop(other, None)
    verdict.faults = dict(kinds)


def _measure_memory(verdict: Verdict, samples: list[Event]) -> None:
    verdict.memory = growth_by_kind(samples)
    if verdict.memory:
        verdict.flat_memory = all(growth.flat for growth in verdict.memory.values())
    for kind, growth in verdict.memory.items():
        if not growth.flat:
            verdict.problems.append(
                f"{kind} grew from {growth.first_mib} to {growth.last_mib} MiB "
                f"in {growth.seconds} s"
            )
