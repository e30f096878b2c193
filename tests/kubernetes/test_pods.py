"""The pods of rendered manifests, run on this machine each on a network of its own."""

import json
import sys
from typing import Any

import pytest
import yaml

from tests.kubernetes.kubelet import ROOT
from tests.kubernetes.machine import Pods
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
NODES = {"rollyard-gpu-0", "rollyard-gpu-1", "rollyard-cpu-0", "rollyard-cpu-1"}
HEAD = "rollyard-head-0"
SEEN_SECONDS = 90.0
"""Time for a loss to be seen, on a machine that does much else."""


def train(pods: Pods, name: str) -> dict[str, Any]:
    """Run the page's trainer, with a command of ours, to its end."""
    job = yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0])
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container["command"] = [sys.executable, "-m", "tests.kubernetes.trainer"]
    container["env"].append({"name": "POD_NAME", "value": name})
    told: dict[str, Any] = json.loads(pods.run(name, spec).splitlines()[-1])
    assert told["groups"] == 16
    return told


def test_a_trainer_gets_its_groups_while_pods_come_and_go(pods: Pods) -> None:
    pods.start(*pods.pods())
    pods.wait_until_ready(HEAD, *NODES)
    assert pods.alive(HEAD, *NODES)
    first = train(pods, "first")
    assert first["servers"].keys() == {f"agent-{node}" for node in NODES}
    below = "rollyard-nodes.default.svc.cluster.local"
    assert set(first["doors"]) == {f"http://{node}.{below}:8006" for node in NODES}
    assert "registered" in pods.log("rollyard-gpu-0", "logs")  # what its processes log

    # One machine is lost, and while it is away another pod moves: it knows the first plan alone.
    pods.kill("rollyard-gpu-1")
    lost = "rollyard-gpu-1 has not been heard of for 12 s"
    until("the loss is seen", lambda: lost in pods.log(HEAD, "keeper"), SEEN_SECONDS)
    pods.stop("rollyard-cpu-1")
    pods.start("rollyard-cpu-1")
    pods.wait_until_ready("rollyard-cpu-1")
    second = train(pods, "second")
    assert second["servers"].keys() == {f"agent-{node}" for node in NODES - {"rollyard-gpu-1"}}

    pods.start("rollyard-gpu-1")
    pods.wait_until_ready("rollyard-gpu-1")
    back = "rollyard-gpu-1 is there again"
    until("it is seen again", lambda: back in pods.log(HEAD, "keeper"), SEEN_SECONDS)
    assert "agent-rollyard-gpu-1" in train(pods, "third")["servers"]

    pods.stop(HEAD, *NODES)
    assert pods.left() == []
