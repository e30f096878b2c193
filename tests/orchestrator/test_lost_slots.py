"""Slots whose attempts ignore their end, or that are lent to others: their server tells how many,
and no Job is sent there."""

from collections.abc import Callable

import pytest

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from rollyard.messages import AgentServer, Heartbeat, Lease, LostSlots, Prompt, RunSettings
from tests.orchestrator.moves import completed, conditions, failed, leased, report

MakePrompt = Callable[[str], Prompt]


@pytest.fixture
def open_queues(patient_queues: Queues, settings: RunSettings, prompt: MakePrompt) -> Queues:
    """An open Run with eight Jobs, and a server with three Slots that takes one Job ahead."""
    queues = patient_queues
    queues.runs.create(settings)
    queues.servers.register(
        AgentServer(
            server_id="agent-0",
            url="http://127.0.0.1:9",
            slots=3,
            ahead=1,
            environments=("arithmetic",),
        )
    )
    queues.tasks.submit("train", [prompt(f"p{number}") for number in range(4)])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=4))
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    return queues


def beat(queues: Queues, *leases: Lease, lost: int = 0, lent: int = 0) -> None:
    reason = f"{lost} of 3 slots are held" if lost else ""
    lost_slots = LostSlots(count=lost, reason=reason)
    queues.servers.heartbeat(
        Heartbeat(server_id="agent-0", leases=leases, lost=lost_slots, lent=lent)
    )


def test_a_lost_slot_is_neither_free_nor_leased(open_queues: Queues) -> None:
    beat(open_queues, lost=1)
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 2
    assert len(open_queues.leases.lease(8)) == 3  # one of them is ahead
    assert open_queues.servers.busy_slots() == {"agent-0": 2}
    assert conditions(open_queues)["agent-0"].jobs_ahead == 1


def test_a_slot_that_is_lost_with_its_attempt_gets_no_job_once_that_is_told(
    open_queues: Queues,
) -> None:
    leases = [each.lease for each in open_queues.leases.lease(3)]
    beat(open_queues, *leases[1:], lost=1)
    report(open_queues, failed(leases[0]))
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 0
    assert report(open_queues, completed(leases[1]), more=True).assignment is not None


def test_jobs_beyond_the_slots_that_are_left_are_followed_by_none(open_queues: Queues) -> None:
    leases = [each.lease for each in open_queues.leases.lease(4)]
    beat(open_queues, *leases, lost=1)
    assert report(open_queues, completed(leases[0]), more=True).assignment is None
    assert report(open_queues, completed(leases[1]), more=True).assignment is not None
    assert open_queues.leases.lease(8) == []


def test_a_server_without_a_slot_takes_no_job_ahead(open_queues: Queues) -> None:
    beat(open_queues, lost=3)
    assert open_queues.leases.lease(8) == []
    why = Operators(open_queues).why("agent-0").reason
    assert why == "agent-0 can run no job: 3 of 3 slots are held; 0 of 3 slots run a job"
    assert (
        Operators(open_queues)
        .why("train/p0/0")
        .reason.startswith(
            "no agent server takes jobs: agent-0 can run no job: 3 of 3 slots are held"
        )
    )


def test_slots_that_come_back_are_offered_again(open_queues: Queues) -> None:
    beat(open_queues, lost=2)
    working = leased(open_queues)
    beat(open_queues, working, lost=0)
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 2
    assert len(open_queues.leases.lease(8)) == 3
    assert conditions(open_queues)["agent-0"].lost == LostSlots()


def test_a_server_that_starts_again_has_all_its_slots(open_queues: Queues) -> None:
    beat(open_queues, lost=2)
    (server,) = open_queues.servers.registered()
    open_queues.servers.register(server)
    assert open_queues.connection.ask(open_queues.servers.offer()).free_slots == 3
    assert len(open_queues.leases.lease(8)) == 4


def test_a_server_says_which_slots_it_lost_and_why(open_queues: Queues) -> None:
    beat(open_queues, lost=1)
    (server,) = open_queues.connection.ask(open_queues.servers.statuses())
    assert server.condition.lost == LostSlots(count=1, reason="1 of 3 slots are held")
    why = Operators(open_queues).why("agent-0").reason
    assert (
        why == "agent-0 has 2 free slots, and 8 jobs are about to be leased; 1 of 3 slots are held"
    )
    leases = [each.lease for each in open_queues.leases.lease(3)]
    beat(open_queues, *leases, lost=1)
    why = Operators(open_queues).why("agent-0").reason
    assert why == "all 2 slots of agent-0 run a job; 1 of 3 slots are held"


def test_what_is_told_of_lost_slots_takes_no_more_room_than_any_other_reason(
    open_queues: Queues,
) -> None:
    endless = LostSlots(count=9, reason="x" * 100_000)
    open_queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(), lost=endless))
    assert conditions(open_queues)["agent-0"].lost == LostSlots(count=3, reason="x" * 1000)


def test_slots_that_are_lent_are_offered_again_once_they_come_back(open_queues: Queues) -> None:
    beat(open_queues, lent=2)
    assert conditions(open_queues)["agent-0"].lent == 2
    assert len(open_queues.leases.lease(8)) == 2  # one of them is ahead
    assert open_queues.servers.busy_slots() == {"agent-0": 1}
    why = Operators(open_queues).why("agent-0").reason
    assert why == "all 1 slots of agent-0 run a job; 2 of its slots are lent to callers of its door"
    beat(open_queues, lent=1)
    assert open_queues.servers.busy_slots() == {"agent-0": 2}
    assert len(open_queues.leases.lease(8)) == 1  # ahead, as the one before runs now


def test_a_server_that_has_lent_all_its_slots_says_so(open_queues: Queues) -> None:
    beat(open_queues, lent=3)
    assert open_queues.leases.lease(8) == []
    why = Operators(open_queues).why("agent-0").reason
    assert why.startswith("agent-0 can run no job: all are lent to callers of its door; 0 of 3")


def test_a_server_that_lends_slots_gets_no_job_for_those_that_become_free(
    open_queues: Queues,
) -> None:
    leases = [each.lease for each in open_queues.leases.lease(3)]
    beat(open_queues, *leases, lent=2)
    assert report(open_queues, completed(leases[0]), more=True).assignment is None
    assert report(open_queues, completed(leases[1]), more=True).assignment is not None  # ahead
    assert open_queues.leases.lease(8) == []


def test_no_more_slots_are_withheld_than_there_are(open_queues: Queues) -> None:
    beat(open_queues, lost=2, lent=2)
    assert conditions(open_queues)["agent-0"].lent == 1
    assert open_queues.leases.lease(8) == []
