"""Rollyard beside a stand-in for NeMo-RL's ray.sub, on an emulated Slurm cluster of four nodes.

The trainer and the commands are those of docs/nemo-rl.md. The real ray.sub, with its containers, is
not run here.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.beside import BesideJob
from tests.slurm.cluster import NODES, SlurmCluster, address_of
from tests.slurm.job import shares
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

LOST_SECONDS = 120.0
"""Time for Slurm to see that a node is lost."""
END_SECONDS = 30.0
"""Time from the trainer's end until nothing is left."""


@pytest.fixture
def job(cluster: SlurmCluster, tmp_path: Path) -> Iterator[BesideJob]:
    made = BesideJob(cluster, tmp_path)
    yield made
    shutil.rmtree(made.temporary)


def test_a_trainer_of_ray_sub_gets_its_groups_from_its_own_llm_servers(job: BesideJob) -> None:
    job.submit()
    job.wait_for_batches(1, "the trainer has its groups")
    told = job.environment()
    assert told["PRORL_SERVER_URLS"].count("+") == len(NODES) - 1
    assert address_of("cpu1") in told["ROLLYARD_URL"]  # the first by name
    job.wait_for_batches(1, "it has those of the next weights")
    job.wait_until_gone()
    over = time.time() - (job.trainer / "batches").stat().st_mtime
    print(f"\n{over:.0f} s from the last batch until nothing is left")
    assert over < END_SECONDS
    first, second = job.batches()
    assert len(first["prompts"]) == len(second["prompts"]) == 16
    assert first["versions"] == [0]
    assert max(second["versions"]) == 1
    assert shares([first, second]).keys() == {f"agent-{node}" for node in NODES}
    job.assert_its_directory_is_clean()


def test_a_job_that_is_cancelled_leaves_nothing_behind_and_goes_on_from_redis(
    cluster: SlurmCluster, job: BesideJob
) -> None:
    (job.trainer / "hold").touch()
    job.submit()
    (first,) = job.wait_for_batches(1, "the trainer has its groups")
    cluster.command("scancel", job.job_id)
    job.wait_until_gone()
    (job.trainer / "hold").unlink()
    job.submit()
    again, second = job.wait_for_batches(2, "the trainer goes on")
    job.wait_until_gone()
    assert again["batch"] == first["batch"] != second["batch"]
    assert again["prompts"] == first["prompts"]
    job.assert_its_directory_is_clean()


def test_a_job_that_is_queued_again_because_it_lost_a_node_goes_on_from_redis(
    cluster: SlurmCluster, job: BesideJob
) -> None:
    """Slurm ends such a job, unless the batch script asks for something else, and queues it."""
    (job.trainer / "hold").touch()
    job.submit()
    (first,) = job.wait_for_batches(1, "the trainer has its groups")
    cluster.lose("gpu2")
    until("it is queued again", lambda: "PENDING" in cluster.jobs().values(), LOST_SECONDS)
    until("nothing is left behind", lambda: not cluster.left_behind(), END_SECONDS)
    cluster.recover("gpu2")
    (again,) = job.wait_for_batches(1, "the trainer has them again")
    assert again["batch"] == first["batch"]
    assert job.fleet.life == f"{job.job_id}.1"
    (job.trainer / "hold").unlink()
    job.wait_for_batches(1, "the trainer goes on")
    job.wait_until_gone()


def test_a_node_on_which_it_cannot_run_ends_the_job_with_the_reason(
    cluster: SlurmCluster, job: BesideJob
) -> None:
    job.directory.mkdir()
    (job.directory / "redis").write_text("not a directory")
    job.submit()
    job.wait_until_gone()
    assert "redis ended with code" in job.log()
    assert not job.batches()
    status = job.status_told()
    assert (status["state"], status["ready"]) == ("over", False)
