"""The ProRL door of an agent server as a process: its callers hang up, and it is killed."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from agent_server.__main__ import parse
from agent_server.status import Status
from launch.ports import free_range
from launch.processes import Started
from rollyard.errors import LaunchError
from rollyard.http import Peer
from rollyard.messages import Outcome
from tests.agent_server.fakes import OrchestratorForAgents, assign, hand, make_job
from tests.agent_server.prorl.client import SAMPLING, ProrlClient, row
from tests.llm_fixtures import POLICY, start_module
from tests.waiting import until

OPTIONS = ["--server-id", "agent-1", "--orchestrator", "http://127.0.0.1:1", "--model", "/m"]
OPTIONS += ["--llm-server", "http://127.0.0.1:2"]


class DoorProcess:
    """One agent server with a door, which can be killed and started again."""

    def __init__(self, directory: Path, orchestrator: OrchestratorForAgents, url: str) -> None:
        native, door = free_range(2)
        self.agent = Peer(f"http://127.0.0.1:{native}", name="agent server")
        self.client = ProrlClient(f"http://127.0.0.1:{door}")
        self._orchestrator = orchestrator
        self._options = ["--port", str(native), "--prorl-port", str(door), "--prorl-open"]
        self._options += ["--server-id", "agent-1", "--orchestrator", url]
        self._log = directory / "agent.log"
        self.process: Started | None = None

    def start(self, llm: str, *, slots: int = 2) -> ProrlClient:
        arguments = ["agent_server", *self._options, "--llm-server", llm, "--model", str(POLICY)]
        self.process = start_module([*arguments, "--slots", str(slots)], self._log)
        assert self._orchestrator.registrations.get(timeout=30).slots == slots // 2
        self.client.post("/start").raise_for_status()
        return self.client


@pytest.fixture
def door(
    tmp_path: Path, orchestrator: OrchestratorForAgents, orchestrator_url: str
) -> Iterator[DoorProcess]:
    process = DoorProcess(tmp_path, orchestrator, orchestrator_url)
    yield process
    if process.process is not None:
        process.process.stop()


def call_and_hang_up(client: ProrlClient, once: str) -> None:
    """A call whose caller goes away `once` a job waits or runs."""
    place = urlsplit(client.url)
    body = json.dumps({"instance": row(), "sampling_params": SAMPLING}).encode()
    head = f"POST /process HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((place.hostname, place.port)) as caller:
        caller.sendall(head + body)
        until(f"a job is {once}", lambda: client.status().json()[once] == 1)


def test_a_job_whose_caller_has_gone_ends(door: DoorProcess, slow_llm: str) -> None:
    client = door.start(slow_llm)
    call_and_hang_up(client, once="run")
    until("it is gone", lambda: client.jobs() == 0)
    until("the LLM server is free", lambda: "running 0" in requests.get(f"{slow_llm}/metrics").text)


def test_the_orchestrators_jobs_and_the_doors_have_slots_of_their_own(
    door: DoorProcess, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    client = door.start(slow_llm)
    calls = [client.begin(row()) for _ in range(3)]
    until("the door is busy", lambda: client.status().json()["pending_jobs"] == 2)
    assignment = assign(make_job())
    hand(door.agent, assignment)
    until("both run", lambda: door.agent.get("/status", Status).busy == 1)
    assert door.agent.get("/status", Status).leases == (assignment.lease,)
    assert len(client.post("/stop").json()["ended"]) == 3
    assert [call.result().status_code for call in calls] == [503] * 3
    result = orchestrator.result()
    assert (result.outcome, result.reward) == (Outcome.COMPLETED, 1.0)
    while not orchestrator.heartbeats.empty():
        assert set(orchestrator.heartbeats.get().leases) <= {assignment.lease}


def test_after_a_restart_the_door_is_closed_and_opens_again(
    door: DoorProcess, slow_llm: str, llm: str
) -> None:
    client = door.start(slow_llm)
    cut = client.begin(row())
    until("a job runs", lambda: client.status().json()["run"] == 1)
    assert door.process is not None
    door.process.kill()
    assert isinstance(cut.exception(), requests.ConnectionError)
    client = door.start(llm)
    assert client.process(row()).json()["score"] == 1.0


def test_an_agent_server_that_is_told_to_end_answers_its_calls(
    door: DoorProcess, slow_llm: str
) -> None:
    client = door.start(slow_llm)
    calls = [client.begin(row()) for _ in range(2)]
    until("one runs, one waits", lambda: client.jobs() == 2)
    assert door.process is not None
    door.process.stop()
    for call in calls:
        assert call.result().status_code == 503
        assert "shutting down" in call.result().json()["message"]


def test_the_door_is_shut_unless_it_is_asked_for() -> None:
    settings = parse(OPTIONS)
    assert (settings.door, settings.runner.slots) == (None, 16)


def test_the_door_has_its_share_of_the_slots() -> None:
    settings = parse([*OPTIONS, "--prorl-port", "9000", "--prorl-slots", "5"])
    assert settings.door is not None
    assert (settings.door.runner.slots, settings.runner.slots) == (5, 11)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slots", "1"], "cannot have 0 of 1 slots"),
        (["--prorl-slots", "16"], "cannot have 16 of 16 slots"),
        (["--port", "9000"], "cannot have port 9000"),
    ],
)
def test_a_door_that_cannot_be_is_refused(options: list[str], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        parse([*OPTIONS, "--prorl-port", "9000", *options])


def test_an_open_door_listens_on_loopback_alone_and_another_wants_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("admin 0123456789abcdef\n")
    tokens.chmod(0o600)
    options = [*OPTIONS, "--host", "0.0.0.0", "--token-file", str(tokens), "--prorl-port", "9000"]
    closed, opened = parse(options).door, parse([*options, "--prorl-open"]).door
    assert closed is not None
    assert opened is not None
    assert (closed.bind.host, bool(closed.tokens)) == ("0.0.0.0", True)
    assert (opened.bind.host, bool(opened.tokens)) == ("127.0.0.1", False)
