"""The agent server as a process: `python -m agent_server`, a stand-in LLM, a fake orchestrator."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from agent_server.__main__ import parse
from agent_server.status import Status
from launch.free_ports import free_port
from launch.processes import Started
from rollyard.errors import Conflict, RollyardError, Unavailable
from rollyard.http import Peer
from rollyard.messages import Accepted, Limits, Outcome
from rollyard.tokens import make_token_file, read_tokens
from tests.agent_server.fakes import PATIENCE_SECONDS, OrchestratorForAgents, assign, hand, make_job
from tests.llm_fixtures import POLICY, ROOT, start_module
from tests.waiting import until


class AgentServers:
    """Agent servers of one test, by Peer."""

    def __init__(self, directory: Path, orchestrator: OrchestratorForAgents, url: str) -> None:
        self.log = directory / "agent.log"
        self._orchestrator = orchestrator
        self._url = url
        self.processes: list[Started] = []

    def launch(
        self, llm: str, *, slots: int = 4, orchestrator: str = "", ready_seconds: float = 60
    ) -> Peer:
        """An agent server on its way up."""
        port = free_port()
        arguments = ["agent_server", "--port", str(port), "--server-id", "agent-1"]
        arguments += ["--orchestrator", orchestrator or self._url, "--llm-server", llm]
        arguments += ["--model", str(POLICY), "--slots", str(slots)]
        arguments += ["--ready-seconds", str(ready_seconds)]
        self.processes.append(start_module(arguments, self.log))
        return Peer(f"http://127.0.0.1:{port}", name="agent server")

    def start(self, llm: str, *, slots: int = 4) -> Peer:
        """An agent server that has registered."""
        agent = self.launch(llm, slots=slots)
        assert self._orchestrator.registrations.get(timeout=30).url == agent.url
        return agent


@pytest.fixture
def started(
    tmp_path: Path, orchestrator: OrchestratorForAgents, orchestrator_url: str
) -> Iterator[AgentServers]:
    servers = AgentServers(tmp_path, orchestrator, orchestrator_url)
    yield servers
    for process in servers.processes:
        process.stop()


def test_a_job_goes_through_tool_and_answer_to_a_reward(
    started: AgentServers, orchestrator: OrchestratorForAgents, llm: str
) -> None:
    agent = started.start(llm)
    hand(agent, assign(make_job()))
    result = orchestrator.result()
    assert result.error == ""
    assert result.outcome is Outcome.COMPLETED
    assert result.reward == 1.0
    assert result.trajectory is not None
    said = [(message.role, message.content) for message in result.trajectory.messages]
    assert said == [
        ("user", "37*48"),
        ("assistant", "<tool_call>37*48</tool_call>"),
        ("tool", "1776"),
        ("assistant", "1776"),
    ]
    assert result.timings.run_seconds > 0


def test_time_that_runs_out_truncates_in_the_middle_of_a_response(
    started: AgentServers, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    limits = Limits(max_turns=4, max_tokens=400, job_seconds=0.8)
    hand(started.start(slow_llm), assign(make_job(limits=limits)))
    result = orchestrator.result()
    assert (result.outcome, result.reward, result.error) == (Outcome.COMPLETED, 0.0, "")
    assert result.trajectory is not None
    assert result.trajectory.truncated
    assert result.trajectory.turns[-1].finish_reason == "abort"
    assert sum(result.trajectory.loss_mask) > 0


def test_a_job_is_cancelled_in_the_middle_of_a_response(
    started: AgentServers, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    agent = started.start(slow_llm)
    assignment = assign(make_job())
    hand(agent, assignment)
    assert agent.get("/status", Status).leases == (assignment.lease,)
    agent.post("/cancel", [assignment.lease], Accepted)
    assert orchestrator.result().outcome is Outcome.CANCELLED


def test_a_job_is_parked_in_the_middle_of_a_response_and_goes_on_with_it(
    started: AgentServers, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    agent = started.start(slow_llm)
    assignment = assign(make_job())
    orchestrator.parked = (assignment.lease,)
    hand(agent, assignment)
    until("the job runs", lambda: agent.get("/status", Status).stages["run"] == 1)
    agent.post("/park", [assignment.lease], Accepted)
    until("the job stands still", lambda: agent.get("/status", Status).parked == 1)
    orchestrator.parked = ()
    agent.post("/resume", [assignment.lease], Accepted)
    result = orchestrator.result()
    assert (result.outcome, result.reward, result.error) == (Outcome.COMPLETED, 1.0, "")
    assert result.timings.parked_seconds > 0
    assert result.trajectory is not None
    said = [message.content for message in result.trajectory.messages]
    assert said == ["37*48", "<tool_call>37*48</tool_call>", "1776", "1776"]


def test_broken_weights_are_never_a_reward(
    started: AgentServers, orchestrator: OrchestratorForAgents, llm: str
) -> None:
    agent = started.start(llm)
    fault = {"kind": "nan_logprobs", "times": 1, "route": "/inference/v1/generate"}
    requests.post(f"{llm}/script/faults", json=fault, timeout=5).raise_for_status()
    hand(agent, assign(make_job()))
    result = orchestrator.result()
    assert (result.outcome, result.reward) == (Outcome.INFRA_FAILED, None)
    assert "NaN" in result.error


def test_all_slots_work_at_once_and_no_more(
    started: AgentServers, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    agent = started.start(slow_llm, slots=3)
    jobs = {f"job-{number}" for number in range(4)}  # one of them is taken ahead
    for job_id in jobs:
        hand(agent, assign(make_job(job_id=job_id)))
    with pytest.raises(Conflict, match="all 3 slots are busy"):
        hand(agent, assign(make_job(job_id="job-4")))
    status = agent.get("/status", Status)
    assert (status.busy, status.ahead) == (3, 1)
    heartbeat = orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS)
    assert {lease.job_id for lease in heartbeat.leases} == jobs


def test_readiness_and_metrics_are_told(
    started: AgentServers, orchestrator: OrchestratorForAgents, llm: str
) -> None:
    agent = started.start(llm)
    orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS)  # only a registered server sends one
    agent.get("/readyz", Accepted)
    hand(agent, assign(make_job()))
    orchestrator.result()
    text = requests.get(f"{agent.url}/metrics", timeout=5).text
    assert 'rollyard_agent_jobs_total{outcome="completed"} 1.0' in text
    assert 'rollyard_agent_stage_seconds_count{stage="run"} 1.0' in text
    assert "rollyard_agent_slots 4.0" in text


def test_a_server_without_its_llm_is_alive_but_not_ready(
    started: AgentServers, orchestrator: OrchestratorForAgents
) -> None:
    agent = started.launch(f"http://127.0.0.1:{free_port()}")
    _await_alive(agent)
    with pytest.raises(Unavailable, match="no answer from the LLM server"):
        agent.get("/readyz", Accepted)
    assert orchestrator.registrations.empty()


def test_a_terminated_server_gives_its_leases_back_and_leaves_no_process(
    started: AgentServers, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    agent = started.start(slow_llm)
    assignment = assign(make_job())
    hand(agent, assignment)
    process = started.processes[0].process
    family = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(True))]
    began = time.monotonic()
    process.terminate()
    assert process.wait(10) == 0
    assert time.monotonic() - began < 15
    assert orchestrator.farewells.get(timeout=1).server_id == assignment.lease.server_id
    assert orchestrator.results.empty()
    # a child may outlive its parent until the machine's first process has reaped it
    until("no process is left", lambda: not any(map(psutil.pid_exists, family)))


GOOD_FLAGS = {
    "--port": "8006",
    "--server-id": "agent-1",
    "--orchestrator": "http://127.0.0.1:1",
    "--llm-server": "http://127.0.0.1:1",
    "--model": str(POLICY),
}


def command_line(changes: dict[str, str]) -> list[str]:
    return [word for flag in (GOOD_FLAGS | changes).items() for word in flag]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"--slots": "0"}, "slots must be positive"),
        ({"--port": "99999"}, "port must be in 1..65535"),
        ({"--host": "0.0.0.0"}, "refusing to listen on 0.0.0.0"),
        ({"--llm-server": "localhost:8000"}, "'localhost:8000' is not the URL"),
        ({"--server-id": "a/b"}, "server_id 'a/b' is not a valid name"),
    ],
)
def test_a_bad_value_is_named(flags: dict[str, str], problem: str) -> None:
    with pytest.raises(RollyardError, match=problem):
        parse(command_line(flags))


def test_the_token_is_for_proxies_of_ours_and_for_no_other_llm_server(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    make_token_file(tokens)
    given = command_line({"--token-file": str(tokens)})
    proxies = ("--llm-proxy", "http://127.0.0.1:2/", "--llm-proxy", "http://127.0.0.1:3,8")
    settings = parse([*given, *proxies])
    assert settings.llm_servers == tuple(f"http://127.0.0.1:{port}" for port in (1, 2, 3))
    assert settings.proxies == {"http://127.0.0.1:2": 1, "http://127.0.0.1:3": 8}
    token = read_tokens(tokens).for_services
    assert settings.llm_tokens == dict.fromkeys(settings.proxies, token)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"--model": "/no/such/model"}, "no model at /no/such/model"),
        ({"--slots": "many"}, "invalid int value: 'many'"),
        ({"--sltos": "4"}, "unrecognized arguments: --sltos"),
    ],
)
def test_a_bad_command_line_ends_with_one_sentence(flags: dict[str, str], problem: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "agent_server", *command_line(flags)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert problem in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_a_server_that_nobody_registers_ends_with_the_reason(
    started: AgentServers, llm: str
) -> None:
    started.launch(llm, orchestrator="http://127.0.0.1:1", ready_seconds=0.5)
    process = started.processes[0].process
    assert process.wait(30) != 0
    log = started.log.read_text()
    assert "agent-1 is not ready after 0.5 s: no answer from orchestrator" in log
    assert "Traceback" not in log


def _await_alive(agent: Peer) -> None:
    until("the agent server is up", lambda: _alive(agent))


def _alive(agent: Peer) -> bool:
    try:
        return requests.get(f"{agent.url}/livez", timeout=1).ok
    except requests.RequestException:
        return False
