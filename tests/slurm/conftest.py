"""One emulated cluster for all tests of a module."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import NODES, SlurmCluster
from tests.slurm.job import SCRIPTED, Job
from tests.waiting import until


@pytest.fixture(scope="module")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture
def cluster(started_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster with all its nodes; what a test leaves is ended, and what it lost is back."""
    yield started_cluster
    started_cluster.end_all_jobs()
    for node in NODES:
        if not started_cluster.has(node):
            started_cluster.recover(node)
    until("all nodes are idle", lambda: started_cluster.states() == {"idle"})


@pytest.fixture
def job(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Job]:
    """A job with scripted LLM servers, to be submitted."""
    made = Job(cluster, tmp_path, SCRIPTED)
    yield made
    shutil.rmtree(made.temporary)
