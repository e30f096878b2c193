"""Jobs leased ahead of a free Slot, on both queue implementations."""

from collections.abc import Callable

import pytest

from orchestrator.queues.contract import Queues
from orchestrator.sampler import Open
from rollyard.messages import AgentServer, Heartbeat, Prompt, RunSettings
from tests.orchestrator.test_queues import completed, decide, leased, report

MakePrompt = Callable[[str], Prompt]


def server(number: int, *, slots: int = 1, ahead: int = 1) -> AgentServer:
    return AgentServer(
        server_id=f"agent-{number}",
        url="http://127.0.0.1:9",
        slots=slots,
        ahead=ahead,
        environments=("arithmetic",),
    )


@pytest.fixture
def yard(patient_queues: Queues, settings: RunSettings) -> Queues:
    """An open Run and two servers with a Slot each, which take one Job ahead."""
    patient_queues.create_run(settings)
    decide(patient_queues, Open())
    patient_queues.register(server(0))
    patient_queues.register(server(1))
    return patient_queues


def test_every_slot_works_before_a_job_is_leased_ahead(yard: Queues, prompt: MakePrompt) -> None:
    yard.submit("train", [prompt(f"p{n}") for n in range(4)])
    servers = [lease.lease.server_id for lease in yard.lease(8)]
    assert sorted(servers[:2]) == ["agent-0", "agent-1"]
    assert sorted(servers[2:]) == ["agent-0", "agent-1"]
    assert yard.busy_slots() == {"agent-0": 1, "agent-1": 1}
    assert yard.free_slots() == 0


def test_no_job_is_leased_ahead_while_few_wait(yard: Queues, prompt: MakePrompt) -> None:
    """It would wait for a Slot of one server while another had nothing to do."""
    yard.submit("train", [prompt("p0")])
    assert len(yard.lease(8)) == 2
    yard.submit("train", [prompt("p1")])
    assert len(yard.lease(8)) == 1  # two wait, as many as could be ahead; then one, too few
    assert yard.lease() == []


def test_a_report_takes_no_job_ahead_while_few_wait(yard: Queues, prompt: MakePrompt) -> None:
    """One that is for a Slot, it takes."""
    yard.submit("train", [prompt("p0"), prompt("p1")])
    leases = [each.lease for each in yard.lease(8)]
    ahead_on = leases[2].server_id
    one_of_two, only = sorted(leases[:2], key=lambda lease: lease.server_id != ahead_on)
    assert report(yard, completed(one_of_two), more=True).assignment is None
    assert report(yard, completed(only), more=True).assignment is not None


def test_a_server_with_a_job_ahead_is_offered_nothing_when_its_slot_is_free(
    yard: Queues, prompt: MakePrompt
) -> None:
    """The Job that waits there takes the Slot."""
    yard.leave("agent-1")
    yard.submit("train", [prompt("p0")])
    working, waiting = leased(yard), leased(yard)
    report(yard, completed(working))
    assert yard.busy_slots() == {"agent-0": 1}
    assert yard.free_slots() == 0
    report(yard, completed(waiting))
    assert yard.free_slots() == 1


def test_a_place_that_was_lost_is_offered_again_as_what_is_missing(
    yard: Queues, prompt: MakePrompt
) -> None:
    yard.leave("agent-1")
    yard.submit("train", [prompt("p0")])
    working, waiting = leased(yard), leased(yard)
    yard.give_back(working)
    yard.give_back(waiting)
    assert yard.free_slots() == 0
    yard.heartbeat(Heartbeat(server_id="agent-0", leases=()))
    assert yard.free_slots() == 1
    assert len(yard.lease(8)) == 2


def test_the_jobs_ahead_of_a_server_that_left_count_no_more(
    yard: Queues, prompt: MakePrompt
) -> None:
    yard.leave("agent-1")
    yard.submit("train", [prompt("p0")])
    assert len(yard.lease(8)) == 2  # one Job that waits is as many as could be ahead now
