"""The emulated Slurm cluster with real vLLM on the CPUs of its two nodes with GPUs: a trainer gets
16 groups, all nodes do their share, and then everything is gone. It prints its figures."""

import re
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.llm_fixtures import VLLM_PYTHON
from tests.slurm.cluster import SlurmCluster
from tests.slurm.job import Job, shares

pytestmark = pytest.mark.timeout(1800)

VLLM = ("--llm-python", str(VLLM_PYTHON), "--llm-on-cpus", "--start-seconds", "900")
READY_SECONDS = 1200.0
TOLD = {"ready": "all 4 nodes are ready", "ended": "the trainer ended with code 0"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with SlurmCluster(tmp_path / "slurm") as cluster:
        made = Job(cluster, tmp_path, VLLM)
        yield made
        shutil.rmtree(made.temporary)


def test_a_trainer_gets_its_groups_from_real_llm_servers(job: Job) -> None:
    submitted = time.time()
    job.submit()
    job.wait_for_batches(1, "the trainer has its groups", READY_SECONDS)
    sampled = time.time()
    job.let_it_end()
    job.wait_until_gone()
    gone = time.time()
    ready, ended = (told_at(job, TOLD[each]) for each in ("ready", "ended"))
    (first, *_) = job.batches()
    print(
        f"\n{ready - submitted:.0f} s from sbatch until all is ready, {sampled - ready:.1f} s until"
        f" the trainer has {len(first['prompts'])} groups of 4, {gone - ended:.1f} s from its end "
        f"until nothing is left; results: {dict(shares([first]))}"
    )
    job.assert_sound()
    assert not list(job.temporary.glob("rollyard-*"))  # vLLM leaves sockets and caches of its own
    assert shares(job.batches()).keys() == {f"agent-{node}" for node in job.fleet.nodes}


def told_at(job: Job, words: str) -> float:
    """When the launcher said this, in unix seconds."""
    found = re.search(rf"^(\S+ \S+) rollyard: {words}", job.log(), re.MULTILINE)
    assert found, job.log()
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").astimezone().timestamp()
