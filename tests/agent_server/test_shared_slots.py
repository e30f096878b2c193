"""Slots that the orchestrator's Jobs and a door's calls share."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_server.control.stop import StopSignal
from agent_server.jobs.settings import RunnerSettings
from agent_server.jobs.shared_slots import SharedSlots, Side
from agent_server.jobs.slots import Crowded, jobs_ahead
from rollyard.errors import Conflict
from rollyard.messages import Lease


def lease(name: object) -> Lease:
    return Lease(job_id=str(name), attempt=1, server_id="", slot="")


def works(side: Side, job: Lease) -> bool:
    try:
        side.wait(job, StopSignal(), 0.0)
    except Crowded:
        return False
    return True


def working(side: Side, jobs: Iterable[int]) -> list[int]:
    return [number for number in jobs if works(side, lease(number))]


class Sharing(RuleBasedStateMachine):
    """Whatever comes and goes on both sides, and however often the door opens and closes."""

    @initialize(size=st.integers(2, 18), ahead=st.integers(0, 3), share=st.integers(1, 17))
    def begin(self, size: int, ahead: int, share: int) -> None:
        self.size, self.share, self.most = size, min(share, size - 1), size + ahead
        self.told: list[int] = []
        runner = RunnerSettings(slots=size, ahead=ahead)
        self.slots = SharedSlots(runner, lambda: self.told.append(self.slots.doors.size))
        self.sides = {"door": self.slots.doors, "orchestrator": self.slots.orchestrators}
        self.jobs: dict[str, list[int]] = {"door": [], "orchestrator": []}
        self.kept: dict[str, set[int]] = {"door": set(), "orchestrator": set()}
        self.count = 0
        self.open_door()

    @rule()
    def open_door(self) -> None:
        self.slots.open(self.share)
        self.open = True

    @rule()
    def close_door(self) -> None:
        self.slots.close()
        self.open = False

    @rule(name=st.sampled_from(["door", "orchestrator"]), several=st.integers(1, 12))
    def arrive(self, name: str, several: int) -> None:
        for _ in range(several if name == "orchestrator" or self.open else 0):
            self.count += 1
            if name == "orchestrator" and len(self.jobs[name]) == self.most:
                with pytest.raises(Conflict):
                    self.sides[name].enter(lease(self.count))
                continue
            self.sides[name].enter(lease(self.count))
            self.jobs[name].append(self.count)

    @precondition(lambda self: any(self.jobs.values()))
    @rule(data=st.data(), several=st.integers(1, 12))
    def leave(self, data: st.DataObject, several: int) -> None:
        name = data.draw(st.sampled_from([name for name, jobs in self.jobs.items() if jobs]))
        for _ in range(min(several, len(self.jobs[name]))):
            gone = self.jobs[name].pop(data.draw(st.integers(0, len(self.jobs[name]) - 1)))
            self.sides[name].leave(lease(gone))
            self.kept[name].discard(gone)

    @rule(name=st.sampled_from(["door", "orchestrator"]))
    def withdraw_the_last(self, name: str) -> None:
        waiters, jobs = self.sides[name].waiters(), self.jobs[name]
        at_work = len(jobs) - len(waiters)
        assert waiters == tuple(map(lease, jobs[at_work:]))
        if jobs:
            assert self.sides[name].withdraw(lease(jobs[-1])) == bool(waiters)
        if waiters:
            gone = jobs.pop()
            with pytest.raises(Crowded):
                self.sides[name].wait(lease(gone), StopSignal(), 0.0)
            self.sides[name].leave(lease(gone))

    @invariant()
    def never_more_jobs_than_slots_nor_begun_beyond_a_part_and_none_loses_its_own(self) -> None:
        busy = 0
        for name, jobs in self.jobs.items():
            at_work = working(self.sides[name], jobs)
            assert at_work == jobs[: len(at_work)], "not in order of arrival"
            assert self.kept[name] <= set(at_work)
            assert self.kept[name] == set(at_work) or len(at_work) <= self.sides[name].size
            self.kept[name] = set(at_work)
            assert (self.sides[name].busy, self.sides[name].waiting) == (
                len(at_work),
                len(jobs) - len(at_work),
            )
            busy += len(at_work)
        assert busy <= self.size

    @invariant()
    def neither_waits_while_its_share_is_idle(self) -> None:
        idle = self.size - self.slots.doors.busy - self.slots.orchestrators.busy
        for side, share in (
            (self.slots.doors, self.share),
            (self.slots.orchestrators, self.size - self.share),
        ):
            assert not (side.waiting and side.busy < share and idle)

    @invariant()
    def one_side_alone_has_all_but_a_few(self) -> None:
        idle = self.size - self.slots.doors.busy - self.slots.orchestrators.busy
        if self.slots.doors.waiting or self.slots.orchestrators.waiting:
            assert idle <= jobs_ahead(self.size)

    @invariant()
    def the_orchestrator_may_lease_more_while_it_has_less_than_its_share(self) -> None:
        leased, offered = len(self.jobs["orchestrator"]), self.size - self.slots.doors.size
        if leased < self.size - self.share:
            assert leased < offered
        assert self.slots.doors.size == (self.told[-1] if self.told else 0)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
