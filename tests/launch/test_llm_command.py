"""`rollyard llm` with the scripted LLM server, beside a deployment that others have started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from agent_server.status import Status
from launch.free_ports import free_range
from launch.parts import read_parts
from launch.restarts import PartState
from llm_servers.contract import GENERATE
from rollyard.api import OrchestratorAPI
from rollyard.http import Peer
from rollyard.messages import LLMNode
from rollyard.tokens import read_tokens
from tests.deployment_fixtures import UP_SECONDS, RunningDeployment
from tests.processes import lives
from tests.waiting import until

NAME = "beside"
ASKED = {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 4, "logprobs": 0}}


class RunningLLMs:
    """A `rollyard llm` on a machine with two GPUs, as it believes."""

    def __init__(self, deployment: RunningDeployment, directory: Path) -> None:
        self.directory = directory
        self.deployment = deployment
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "launch.cli", "llm", "--llm", "scripted"),
                *("--url", deployment.url, "--port", str(free_range(4).start)),
                *("--name", NAME, "--directory", str(directory)),
            ],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(directory.with_suffix(".err")).open("wb"),
        )

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.directory.with_suffix(".err").read_text()
        self.urls: dict[str, str] = json.loads(line)
        self.members = psutil.Process(self.process.pid).children(recursive=True)

    def ask(self, token: str = "") -> int:
        """The status of the proxy's answer to a request for tokens."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        url = self.urls["llm-proxy"] + GENERATE
        return requests.post(url, json=ASKED, headers=shown, timeout=60).status_code

    def kill(self, name: str) -> None:
        (part,) = (part for part in read_parts(self.directory) if part.name == name)
        os.kill(part.pid, signal.SIGKILL)

    def is_back(self, name: str) -> bool:
        (part,) = (part for part in read_parts(self.directory) if part.name == name)
        return part.restarts == 1 and part.state is PartState.READY

    def announced(self) -> list[LLMNode]:
        """What the orchestrator knows of it."""
        api = OrchestratorAPI(self.deployment.url, token_file=self.deployment.directory / "tokens")
        return [node for node in api.status().llm_nodes if node.node_id == NAME]

    def is_used(self) -> bool:
        """Whether agent servers of the deployment ask it."""
        token_file = self.deployment.directory / "tokens"
        agent = json.loads(self.deployment.line)["agent-0"]
        requests.get(f"{agent}/readyz", timeout=60)  # which asks servers that are new
        peer = Peer(agent, name="agent-0", token=read_tokens(token_file).widest)
        used = {each.url for each in peer.get("/status", Status).llm_servers}
        return self.urls["llm-proxy"] in used

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def llms(lasting_deployment: RunningDeployment, tmp_path: Path) -> Iterator[RunningLLMs]:
    running = RunningLLMs(lasting_deployment, tmp_path / "llm")
    try:
        running.wait_until_up()
        yield running
    finally:
        running.stop()


@pytest.mark.timeout(UP_SECONDS)
def test_a_machine_serves_one_llm_for_each_gpu_restarts_what_dies_and_leaves_nothing(
    llms: RunningLLMs,
) -> None:
    """Only its proxy is reached with a token, and the orchestrator knows it as long as it runs."""
    until("the agent servers use it", llms.is_used)
    token = read_tokens(llms.deployment.directory / "tokens").for_services
    (node,) = llms.announced()
    assert node.servers == (llms.urls["llm-0"], llms.urls["llm-1"])
    assert node.proxy == llms.urls["llm-proxy"]
    assert (llms.ask(), llms.ask(token)) == (401, 200)
    for name in ("llm-1", "llm-proxy"):
        llms.kill(name)
        if name == "llm-1":
            assert llms.ask(token) == 200
        until(f"{name} is back", lambda name=name: llms.is_back(name))  # type: ignore[misc]
        assert llms.ask(token) == 200
    assert llms.stop() == 130
    assert llms.announced() == []
    until("the agent servers do without it", lambda: not llms.is_used())
    _, alive = psutil.wait_procs(llms.members, timeout=0.5)
    assert not list(filter(lives, alive))


@pytest.mark.parametrize(
    ("options", "gpus", "said"),
    [
        (
            ("--llm", "scripted", "--tensor-parallel", "4"),
            "0,1,2,3,4,5",
            "LLM servers of 4 GPUs each cannot share 6 evenly; use --tensor-parallel 1, 2, 3 or 6",
        ),
        (("--", "-tp=2"), "0,1", "-tp=2 is not to be given to vLLM here"),
        (("--llm", "scripted", "--llm-servers", "2"), "0", "leave out --llm-servers"),
        (("--llm", "scripted", "--host", "0.0.0.0"), "0", "refusing to listen on 0.0.0.0"),
        (("--llm", "scripted", "--name", "a b"), "0", "--name 'a b' is not a valid name"),
        (("--llm", "scripted", "--port", "65535"), "0", "ports 65535 to 65537 do not exist"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    options: tuple[str, ...], gpus: str, said: str, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "launch.cli", "llm", "--directory", str(tmp_path / "llm"))
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": gpus, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "llm" / "logs").exists()
