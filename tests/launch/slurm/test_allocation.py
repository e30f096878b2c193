"""The nodes of a job, read from what Slurm 22.05 to 24.11 print."""

import pytest

from launch.slurm.allocation import addresses_of, allocated_nodes, names_of, own_job_id, slurm
from orchestrator.placement import FleetNode
from rollyard.errors import LaunchError

HETEROGENEOUS = """\
JobId=1 HetJobId=1 HetJobOffset=0 JobName=het
   NodeList=gpu[1-2]
   TRES=cpu=2,node=2,billing=2
   JOB_GRES=gpu:4
     Nodes=gpu1 CPU_IDs=3 Mem=0 GRES=gpu:2(IDX:0-1)
     Nodes=gpu2 CPU_IDs=3 Mem=0 GRES=gpu:a100:2(IDX:0,3),nic:1(IDX:0)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0

JobId=2 HetJobId=1 HetJobOffset=1 JobName=het
     Nodes=cpu[1-2],login CPU_IDs=0 Mem=0 GRES=
"""
NODES = """\
NodeName=gpu1 Arch=x86_64 Gres=gpu:2 NodeAddr=127.0.0.11 NodeHostName=localhost Port=28786
NodeName=cpu1 Arch=x86_64 Gres=(null) NodeAddr=127.0.0.13 NodeHostName=localhost Port=28788
"""


def test_a_node_has_the_gpus_that_the_job_was_given() -> None:
    found = allocated_nodes("1", lambda *_: HETEROGENEOUS)
    expected = {"gpu1": 2, "gpu2": 2, "cpu1": 0, "cpu2": 0, "login": 0}
    assert found == [FleetNode(name=name, gpus=gpus) for name, gpus in expected.items()]


def test_a_job_without_nodes_is_refused() -> None:
    with pytest.raises(LaunchError, match="names no nodes of job 7"):
        allocated_nodes("7", lambda *_: "JobId=7 JobState=PENDING\n")


def test_nodes_have_the_addresses_of_slurms_configuration() -> None:
    found = addresses_of(["gpu1", "cpu1"], lambda *_: NODES)
    assert found == {"gpu1": "127.0.0.11", "cpu1": "127.0.0.13"}


def test_names_of_nodes_are_listed_as_slurm_lists_them() -> None:
    assert names_of("gpu[1-2,07],login,r[1-2]c1") == [
        "gpu1",
        "gpu2",
        "gpu07",
        "login",
        "r1c1",
        "r2c1",
    ]


def test_what_needs_slurm_says_so_elsewhere() -> None:
    with pytest.raises(LaunchError, match="not a job of Slurm"):
        own_job_id({})
    with pytest.raises(LaunchError, match="there is no rollyard-no-such-command"):
        slurm("rollyard-no-such-command")
