"""A job on an emulated Slurm cluster that is queued again goes on where its Redis says."""

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.job import Job

pytestmark = pytest.mark.timeout(600)


def test_a_job_that_is_queued_again_goes_on_where_it_was(cluster: SlurmCluster, job: Job) -> None:
    """Once by its own warning that its time is nearly over, once by Slurm, which gives no time."""
    job.submit()
    job.wait_for_batches(1, "the trainer has its groups")
    cluster.command("scancel", "--batch", "--signal=USR1", job.job_id)
    job.wait_for_batches(2, "the trainer goes on")
    assert "the job is queued again" in job.log()
    cluster.command("scontrol", "requeue", job.job_id)
    job.wait_for_batches(2, "the trainer goes on once more")
    job.let_it_end()
    job.wait_until_gone()
    assert job.log().count("all 4 nodes are ready") == 3
    job.assert_sound()
    job.assert_nothing_is_littered()
