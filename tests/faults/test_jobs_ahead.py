"""Jobs that were leased ahead, with real agent servers: no Slot stands idle beside them."""

from tests.faults.conftest import MakeDeployment
from tests.faults.fault_deployment import assert_once_each
from tests.waiting import until


def test_a_job_that_waits_for_a_slot_runs_on_a_server_that_has_one_free(
    make_deployment: MakeDeployment,
) -> None:
    deployment = make_deployment(agent_servers=2, slots=2)
    deployment.start_services()
    deployment.cluster.start_agent(1)
    deployment.wait_for_servers(1)
    rows = [{"number": number, "gate": str(deployment.gate)} for number in range(3)]
    batch = deployment.rollout(rows, "ahead")
    deployment.wait_for_running(2)  # they wait for the gate, as second attempts do not
    until("the third job is leased", lambda: deployment.counters("ahead").jobs_leased == 3)
    deployment.cluster.start_agent(0)  # it can run all that the other can
    until("the third job has run elsewhere", lambda: deployment.accepted("ahead") == 1)
    deployment.gate.touch()
    assert_once_each(batch.result(60), range(3), deployment.counters("ahead"))
