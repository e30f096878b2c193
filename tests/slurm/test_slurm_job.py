"""Rollyard on an emulated Slurm cluster: two nodes with GPUs, two without, and real daemons."""

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.job import Job, shares

pytestmark = pytest.mark.timeout(600)

AGENT_SERVERS = {"agent-gpu1", "agent-gpu2", "agent-cpu1", "agent-cpu2"}


def test_a_trainer_gets_its_groups_and_then_everything_is_gone(job: Job) -> None:
    job.submit()
    first = job.wait_for_batches(1, "the trainer has its groups")[0]
    job.let_it_end()
    job.wait_until_gone()
    assert "Killed" not in job.log()
    assert sum(first["servers"].values()) == 64
    assert first["servers"].keys() == AGENT_SERVERS
    job.assert_sound()
    job.assert_nothing_is_littered()


def test_a_job_that_is_cancelled_leaves_its_queues_alone_and_goes_on_with_them(
    cluster: SlurmCluster, job: Job
) -> None:
    job.submit()
    job.wait_for_batches(1, "the trainer has its groups")
    cluster.command("scancel", job.job_id)
    job.wait_until_gone()
    job.assert_its_directory_is_clean()  # the next agent server removes what sandboxes left
    job.submit()
    job.wait_for_batches(2, "the trainer goes on")
    job.let_it_end()
    job.wait_until_gone()
    job.assert_nothing_is_littered()
    job.assert_sound()
    assert shares(job.batches()).keys() == AGENT_SERVERS
