"""Any order of moves leaves the queues where a dictionary model says.

Leases outlive every example; a rule makes one Lease or one server overdue, so that what expires,
and when, is the example's choice. `--hypothesis-profile=long` runs many more examples.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.events import BatchRequested
from orchestrator.kinds import JobKind
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Conclusion, Moved
from orchestrator.queues.limits import QuarantineSettings
from orchestrator.queues.runs import Backlog
from orchestrator.queues.servers import Offer
from orchestrator.sampling.decisions import (
    AnyDecision,
    Cancel,
    Chosen,
    Drop,
    Enqueue,
    Hold,
    Open,
    Park,
    Requeue,
    RequeueAll,
    Retract,
    Why,
)
from rollyard.errors import Conflict, NotFound
from rollyard.messages import (
    AgentServer,
    Heartbeat,
    JobState,
    Lease,
    Outcome,
    Prediction,
    Prompt,
    Receipt,
    Reported,
    Result,
    RunSettings,
)
from rollyard.unpacking import unpacked_group
from tests.orchestrator.moves import completed, delivery
from tests.orchestrator.queue_model import MAX_FAILURES, Abilities, QueueModel, RunModel
from tests.queue_fixtures import QueueMaker

RUNS = ("left", "right")
SERVERS = ("agent-0", "agent-1")
SETTINGS = {
    run_id: RunSettings(
        run_id=run_id,
        group_size=2,
        max_infra_failures=MAX_FAILURES,
        prediction=prediction,
        tags=tags,
    )
    for run_id, prediction, tags in zip(
        RUNS,
        (Prediction(), Prediction(stage_members=1, redundant_members=1)),
        ((), ("gpu",)),
        strict=True,
    )
}
KINDS = (JobKind("arithmetic"), JobKind("code"), JobKind("arithmetic", ("gpu",)))
"""What a Prompt's row may say that it needs; of a row without tags the Run's apply."""
ABLE_TO_ALL = Abilities(("arithmetic", "code"), ("gpu",))
ABILITIES = st.just(ABLE_TO_ALL) | st.builds(
    Abilities,
    st.sampled_from((("arithmetic",), ("code",), ("arithmetic", "code"))),
    st.sampled_from(((), ("gpu",), ("gpu", "large"))),
)
LEASE_SECONDS = 3600.0
PARTS = 4
"""Tests that share the examples, so that as many processes may."""
STEPS_TO_A_LOOK = 5
"""Moves to one look at all that there is: most of a look's time is spent on the way to Redis."""
NEVER = QuarantineSettings(after_failures=1_000_000)


class TimelessQueues(Queues):
    """Queues in which nothing is overdue until it is made so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, lease_seconds=LEASE_SECONDS, quarantine=NEVER, **options)

    def make_overdue(self, book: str, name: str) -> None:
        """A Lease (`leases`, job id) or a server (`seen`, server id) is to be taken back now."""
        self.connection.do(lambda r: r.zadd(self.connection.key(book), {name: 0.0}))


class QueueMachine(RuleBasedStateMachine):
    """Makes each move on the queues and on the model, and compares what they say."""

    def __init__(self, queues: TimelessQueues) -> None:
        super().__init__()
        self.queues = queues
        self.model = QueueModel(RUNS)
        self.ever_accepted: set[str] = set()
        self.checks = itertools.count(1)

    @initialize()
    def create_runs(self) -> None:
        for run_id in RUNS:
            self.queues.runs.create(SETTINGS[run_id])

    @rule(
        run_id=st.sampled_from(RUNS),
        rows=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(KINDS)), max_size=3),
    )
    def submit(self, run_id: str, rows: list[tuple[int, JobKind]]) -> None:
        settings = SETTINGS[run_id]
        prompts = [prompt_of(f"p{number}", kind) for number, kind in rows]
        fed = self.queues.tasks.submit(run_id, prompts)
        assert fed == [
            self.model.submit(
                run_id,
                prompt.prompt_id,
                JobKind(kind.environment, kind.tags or settings.tags),
                settings.first_members,
            )
            for prompt, (_, kind) in zip(prompts, rows, strict=True)
        ]

    @rule(most=st.integers(1, 3))
    def lease(self, most: int) -> None:
        assignments = self.queues.leases.lease(most)
        for assignment in assignments:
            note(f"leased {assignment.lease}")
            assert assignment.job.job_id == assignment.lease.job_id
            self.model.lease(assignment.lease)
        assert len(assignments) == most or not list(self.model.next_slots())

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data(), more=st.booleans())
    def report(self, data: st.DataObject, more: bool) -> None:
        """Of any Leases ever given: held, lost, or reported before, also in the same breath."""
        ended = st.tuples(st.sampled_from(self.model.leases[-8:]), st.sampled_from(Outcome))
        reports = data.draw(st.lists(ended, min_size=1, max_size=3))
        answers = self.queues.leases.report([result_of(*each) for each in reports], more=more)
        for (lease, outcome), answer in zip(reports, answers, strict=True):
            self._compare(lease, outcome, answer, more=more)

    def _compare(self, lease: Lease, outcome: Outcome, answer: Reported, *, more: bool) -> None:
        brings_next = more and self.model.brings_next(lease, outcome)
        assert answer.receipt is self.model.report(lease, outcome)
        following = None if answer.assignment is None else answer.assignment.lease
        if answer.receipt is Receipt.DUPLICATE:
            assert following == (self.model.occupant(lease.slot) if more else None)
        else:
            assert (following is not None) == brings_next
            if following is not None:
                self.model.take_next(following)
        if answer.receipt is Receipt.ACCEPTED:
            assert lease.job_id not in self.ever_accepted
            self.ever_accepted.add(lease.job_id)

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.model.leases[-8:]))
        self.queues.leases.give_back(lease)
        self.model.give_back(lease)

    @rule(data=st.data(), server_id=st.sampled_from(SERVERS))
    def heartbeat(self, data: st.DataObject, server_id: str) -> None:
        named = self._draw_leases_of(data, server_id)
        for lease in named:
            if self.model.holds(lease):
                self.queues.make_overdue("leases", lease.job_id)
        known = server_id in self.model.sizes
        if known:
            self.queues.make_overdue("seen", server_id)
        reply = self.queues.servers.heartbeat(Heartbeat(server_id=server_id, leases=tuple(named)))
        assert reply.known == known
        if known:
            assert (list(reply.stop), list(reply.parked)) == self.model.heartbeat(server_id, named)
            self.queues.leases.expire()  # takes nothing back: all that was overdue was just named

    @rule(
        server_id=st.sampled_from(SERVERS),
        size=st.integers(1, 3),
        ahead=st.integers(0, 2),
        has=ABILITIES,
    )
    def register(self, server_id: str, size: int, ahead: int, has: Abilities) -> None:
        """Also one that is registered, which may be able to run other Jobs than before."""
        server = AgentServer(
            server_id=server_id,
            url="http://127.0.0.1:9",
            slots=size,
            ahead=ahead,
            environments=has.environments,
            tags=has.tags,
        )
        self.queues.servers.register(server)
        self.model.register(server_id, size, ahead, has)

    @rule(server_id=st.sampled_from(SERVERS))
    def leave(self, server_id: str) -> None:
        self.queues.servers.leave(server_id)
        self.model.leave(server_id)

    @precondition(lambda self: self.model.sizes)
    @rule(data=st.data())
    def a_server_falls_silent(self, data: st.DataObject) -> None:
        server_id = data.draw(st.sampled_from(sorted(self.model.sizes)))
        self.queues.make_overdue("seen", server_id)
        self.queues.leases.expire()
        self.model.silent(server_id)

    @precondition(lambda self: any(run.holders for run in self.model.runs.values()))
    @rule(data=st.data())
    def a_lease_expires(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self._held()))
        self.queues.make_overdue("leases", lease.job_id)
        self.queues.leases.expire()
        self.model.overdue(lease)

    @rule(run_id=st.sampled_from(RUNS))
    def open(self, run_id: str) -> None:
        """What is parked goes on."""
        moved = self._decide(run_id, Open())
        assert_same(moved.resume, self.model.open(run_id))

    @rule(run_id=st.sampled_from(RUNS))
    def a_conclusion_from_an_outdated_state_is_refused(self, run_id: str) -> None:
        outdated = self._conclusion(run_id, 1, Hold())
        self._decide(run_id, Open())
        self.model.open(run_id)
        with pytest.raises(Conflict):
            self.queues.events.conclude(run_id, outdated)

    @rule(run_id=st.sampled_from(RUNS))
    def hold_and_requeue_all(self, run_id: str) -> None:
        ended = self._decide(run_id, Hold(), RequeueAll()).stop
        expected = self.model.hold_and_requeue_all(run_id)
        assert_same(ended, expected)

    @rule(run_id=st.sampled_from(RUNS))
    def hold_and_park(self, run_id: str) -> None:
        moved = self._decide(run_id, Hold(), Park())
        assert_same(moved.park, self.model.hold_and_park(run_id))

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        """Jobs that are too old begin again; which of them run, only the queues know."""
        run_id = data.draw(st.sampled_from(self._held())).job_id.split("/")[0]
        jobs = data.draw(st.permutations(self.model.runs[run_id].unfinished()))
        ended = self._decide(run_id, Requeue(job_ids=tuple(jobs))).stop
        assert_same(ended, self.model.requeue(run_id, jobs))

    @precondition(lambda self: self._living_groups())
    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        """Groups whose first members are not all get the others."""
        run_id, group = data.draw(st.sampled_from(self._living_groups()))
        added = self.model.enqueue(run_id, group, SETTINGS[run_id].members)
        self._decide(run_id, Enqueue(job_ids=tuple(added)))

    @precondition(lambda self: self._accepted())
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Accepted Results are taken back, and may be accepted once more."""
        run_id, group = data.draw(st.sampled_from(sorted(self._accepted())))
        jobs = data.draw(st.lists(st.sampled_from(self._accepted()[run_id, group]), unique=True))
        self._decide(run_id, Retract(job_ids=tuple(jobs)))
        self.model.restart(run_id, jobs)
        self.ever_accepted -= set(jobs)

    @precondition(lambda self: self._living_groups())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run_id, group = data.draw(st.sampled_from(self._living_groups()))
        members = st.sampled_from(self.model.runs[run_id].fed[group])
        jobs = data.draw(st.lists(members, unique=True))
        moved = self._decide(run_id, Cancel(job_ids=tuple(jobs)))
        assert_same(moved.stop, self.model.cancel(run_id, jobs))

    @precondition(lambda self: any(run.living_groups() for run in self.model.runs.values()))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        run_id, group = data.draw(st.sampled_from(self._living_groups()))
        ended = self._decide(run_id, Drop(group_ids=(group,), why=Why.FILTERED)).stop
        assert_same(ended, self.model.drop(run_id, group))

    @rule(run_id=st.sampled_from(RUNS))
    def queued_jobs_are_listed_as_they_wait(self, run_id: str) -> None:
        listed = self.queues.jobs.records(run_id, JobState.QUEUED, 1000)
        waiting = self.model.runs[run_id].waiting()
        assert [job.job_id for job in listed] == [job for jobs in waiting.values() for job in jobs]

    @precondition(lambda self: self._accepted())
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """What is delivered can be fetched, exactly, until it is acknowledged."""
        run_id, group = data.draw(st.sampled_from(sorted(self._accepted())))
        jobs = sorted(self._accepted()[run_id, group])
        members = tuple(int(job[-1]) for job in jobs)
        complete = delivery("b", **{group: members})
        self._decide(run_id, complete, delivered={"b": complete.groups})
        for _ in range(2):
            (fetched,) = map(unpacked_group, self.queues.batches.groups(run_id, "b"))
            accepted = self.model.runs[run_id].accepted
            seen = {result.lease.job_id: result.lease.attempt for result in fetched.results}
            assert list(seen.items()) == [(job, accepted[job]) for job in jobs]
        assert self.queues.batches.report(run_id, "b").slots == sum(self.model.sizes.values())
        self._decide(run_id, Drop(group_ids=(group,), why=Why.CONSUMED), delivered={})
        self.model.drop(run_id, group)
        with pytest.raises(NotFound):
            self.queues.batches.groups(run_id, "b")
        with pytest.raises(NotFound):
            self.queues.batches.report(run_id, "b")

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        runs, connection = self.queues.runs, self.queues.connection
        offer = connection.ask(self.queues.servers.offer())
        for seen in connection.ask_together(*(runs.run(run_id) for run_id in RUNS)):
            counters, run = seen.counters, self.model.runs[seen.settings.run_id]
            assert counters.jobs_submitted == run.submitted()
            assert (counters.jobs_queued, counters.jobs_leased) == (
                len(run.tasks),
                len(run.holders),
            )
            assert (counters.jobs_accepted, counters.jobs_dead, counters.jobs_dropped) == (
                len(run.accepted),
                len(run.dead),
                len(run.dropped),
            )
            assert counters.jobs_parked == len(run.parked)
            assert counters.jobs_unoffered == len(self.model.unoffered(run))
            assert counters.jobs_carried_over == run.carried_over
            assert counters.groups_fed == len(run.fed)
            assert counters.attempts_failed == run.charged
            assert (seen.concluded, seen.events_waiting) == (run.concluded, len(run.events))
            self._check_backlog(run, seen.backlog, offer.classes)
        self._check_slots(offer)
        if next(self.checks) % STEPS_TO_A_LOOK == 0:
            self._look_at_everything()

    def _check_slots(self, offer: Offer) -> None:
        """Slots are free as the model says."""
        assert offer.free == Counter(slot.split("#")[0] for slot in self.model.free)
        assert set(offer.classes) == set(self.model.abilities)

    def _look_at_everything(self) -> None:
        """What no move takes away again is the same, too."""
        assert {run.settings.run_id for run in self.queues.runs.read_all().readable} == set(RUNS)
        assert self.queues.servers.busy_slots() == {
            server_id: min(size, self.model.load(server_id))
            for server_id, size in self.model.sizes.items()
        }
        for run_id, run in self.model.runs.items():
            assert set(self.queues.leases.begun(run_id)) == set(run.holders)
            assert self.queues.tasks.prompts(run_id) == sorted(run.living_groups())

    def _check_backlog(self, run: RunModel, backlog: Backlog, classes: dict[str, str]) -> None:
        """Jobs wait for the servers that can run them."""
        waiting = {classes[server]: self.model.queued_for(run, server) for server in classes}
        assert {name: jobs for name, jobs in backlog.jobs.items() if jobs} == {
            name: jobs for name, jobs in waiting.items() if jobs
        }
        unoffered = {run.kind_of(job) for job in self.model.unoffered(run)}
        assert set(backlog.unoffered_kinds) == unoffered

    def _decide(
        self,
        run_id: str,
        *decisions: AnyDecision,
        delivered: dict[str, tuple[Chosen, ...]] | None = None,
    ) -> Moved:
        """Conclude every waiting event with these decisions."""
        run = self.model.runs[run_id]
        self.queues.events.tell(run_id, BatchRequested(batch_id="b", requested_batch_size=1))
        run.events.append("BatchRequested")
        waiting = [
            type(event).__name__
            for event in self.queues.connection.ask(self.queues.events.oldest(run_id))
        ]
        assert waiting == run.events
        run.events.clear()
        run.concluded += len(waiting)
        conclusion = self._conclusion(run_id, len(waiting), *decisions)
        if delivered is not None:
            conclusion.state.delivered = delivered
        return self.queues.events.conclude(run_id, conclusion)

    def _conclusion(self, run_id: str, events: int, *decisions: AnyDecision) -> Conclusion:
        seen = self.queues.runs.read(run_id)
        return Conclusion(
            after=seen.concluded, events=events, state=seen.state, decisions=list(decisions)
        )

    def _draw_leases_of(self, data: st.DataObject, server_id: str) -> list[Lease]:
        given = [lease for lease in self.model.leases if lease.server_id == server_id]
        by_slot = {lease.slot: lease for lease in data.draw(st.permutations(given[-6:]))}
        kept = data.draw(st.sets(st.sampled_from(sorted(by_slot)))) if by_slot else set()
        return [lease for slot, lease in by_slot.items() if slot in kept]

    def _held(self) -> list[Lease]:
        return [lease for run in self.model.runs.values() for lease in run.holders.values()]

    def _living_groups(self) -> list[tuple[str, str]]:
        return [(name, g) for name, run in self.model.runs.items() for g in run.living_groups()]

    def _accepted(self) -> dict[tuple[str, str], list[str]]:
        """Run and Group -> its Jobs with an accepted Result; Groups that have one."""
        found = {
            (run_id, group): [
                job for job in self.model.runs[run_id].fed[group]
                if job in self.model.runs[run_id].accepted
            ]
            for run_id, group in self._living_groups()
        }  # fmt: skip
        return {group: jobs for group, jobs in found.items() if jobs}


def prompt_of(name: str, kind: JobKind) -> Prompt:
    tags = {"tags": list(kind.tags)} if kind.tags else {}
    return Prompt(prompt_id=name, instance={"data_source": kind.environment, **tags})


def assert_same(seen: Iterable[Lease], expected: Iterable[Lease]) -> None:
    """In any order."""
    assert sorted(map(str, seen)) == sorted(map(str, expected))


def result_of(lease: Lease, outcome: Outcome) -> Result:
    if outcome is Outcome.COMPLETED:
        return completed(lease)
    return Result(lease=lease, outcome=outcome, error="made up")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_queues_do_what_the_model_says(part: int, make_queues: QueueMaker) -> None:
    """600 examples under the default profile, and in proportion under another."""

    def machine() -> QueueMachine:
        return QueueMachine(make_queues(TimelessQueues))

    if settings().derandomize:  # as in CI, where all parts would else draw the same examples
        seed(part)(machine)
    budget: dict[str, Any] = {
        "max_examples": settings().max_examples * 6 // PARTS,
        "stateful_step_count": 50,
        "deadline": None,
        "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
    }
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # any factory
        settings=settings(**budget),
    )
