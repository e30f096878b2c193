"""The ProRL door of an agent server as a process: its callers hang up, and it is killed."""

from pathlib import Path

import pytest
import requests

from agent_server.__main__ import parse
from agent_server.status import Status
from rollyard.errors import LaunchError
from rollyard.messages import Outcome
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    OrchestratorForAgents,
    assign,
    hand,
    make_job,
)
from tests.agent_server.prorl.client import row
from tests.agent_server.prorl.door_process import DoorProcess
from tests.waiting import until

OPTIONS = ["--server-id", "agent-1", "--orchestrator", "http://127.0.0.1:1", "--model", "/m"]
OPTIONS += ["--llm-server", "http://127.0.0.1:2"]


def test_a_job_whose_caller_has_gone_ends(door: DoorProcess, slow_llm: str) -> None:
    client = door.start(slow_llm)
    with client.calling(row()):
        until("a job runs", lambda: client.status().json()["run"] == 1)
    until("it is gone", lambda: client.jobs() == 0)
    until("the LLM server is free", lambda: "running 0" in requests.get(f"{slow_llm}/metrics").text)


def test_calls_that_wait_keep_no_job_of_the_orchestrator_from_its_share(
    door: DoorProcess, orchestrator: OrchestratorForAgents, slow_llm: str
) -> None:
    client = door.start(slow_llm)
    calls = [client.begin(row()) for _ in range(3)]
    until("the door is busy", lambda: client.status().json()["pending_jobs"] == 2)
    assignment = assign(make_job())
    hand(door.agent, assignment)
    until("both run", lambda: door.agent.get("/status", Status).busy == 1)
    assert door.agent.get("/status", Status).leases == (assignment.lease,)
    while (told := orchestrator.heartbeats.get(timeout=PATIENCE_SECONDS)).lent != 1:
        assert set(told.leases) <= {assignment.lease}
    assert len(client.post("/stop").json()["ended"]) == 3
    assert [call.result().status_code for call in calls] == [503] * 3
    result = orchestrator.result()
    assert (result.outcome, result.reward) == (Outcome.COMPLETED, 1.0)
    while not orchestrator.heartbeats.empty():
        assert set(orchestrator.heartbeats.get().leases) <= {assignment.lease}


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
    assert (settings.door.share, settings.runner.slots) == (5, 16)


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
