"""Nodes of a job on an emulated Slurm cluster are lost and come back; the trainer goes on."""

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.job import Job, shares
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

SEEN_SECONDS = 120.0
"""Time for a loss to be seen, on a machine that does much else."""
LEFT = {"gpu1", "cpu1"}


def asks(job: Job, node: str) -> set[str]:
    """The nodes whose LLM servers the agent server of the node asks, by the present plan."""
    fleet = job.fleet
    return {other for other in fleet.nodes if fleet.proxy_url(other) in fleet.proxies_of(node)}


def agents(job: Job) -> set[str]:
    """The nodes whose agent servers are registered."""
    return {server.server_id.removeprefix("agent-") for server in job.status().servers}


def llm_nodes(job: Job) -> set[str]:
    return {node.node_id for node in job.status().llm_nodes}


def test_the_job_goes_on_with_the_nodes_that_are_left(cluster: SlurmCluster, job: Job) -> None:
    job.submit()
    job.wait_for_batches(1, "the trainer has its groups")
    assert (asks(job, "cpu1"), asks(job, "cpu2")) == ({"gpu1"}, {"gpu2"})

    with cluster.cut_off("gpu2"):  # whoever waits for its answers hears nothing at all
        until("its silence is seen", lambda: job.fleet.absent == ("gpu2",), SEEN_SECONDS)
        assert asks(job, "cpu2") == {"gpu1"}
        until("nothing waits for it", lambda: "gpu2" not in llm_nodes(job), SEEN_SECONDS)
        without = job.wait_for_batches(3, "the trainer goes on without its LLM servers")
        assert shares(without[1:])["agent-cpu2"] > 0
    until("it is there again", lambda: job.fleet.absent == (), SEEN_SECONDS)
    assert (asks(job, "cpu1"), asks(job, "cpu2")) == ({"gpu1"}, {"gpu2"})
    until("its agent server is back", lambda: "gpu2" in agents(job), SEEN_SECONDS)
    job.wait_for_batches(1, "the trainer goes on with it")

    cluster.lose("gpu2")
    cluster.lose("cpu2")
    until("both losses are seen", lambda: set(job.fleet.absent) == {"gpu2", "cpu2"}, SEEN_SECONDS)
    until("nothing waits for them", lambda: llm_nodes(job) | agents(job) == LEFT, SEEN_SECONDS)
    left = job.wait_for_batches(2, "the trainer goes on without either")
    assert shares(left[1:]).keys() == {f"agent-{node}" for node in LEFT}
    job.let_it_end()
    job.wait_until_gone()
    job.assert_sound()
