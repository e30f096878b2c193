"""The NeMo-Gym door of an agent server as a process, and its options."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import requests

from agent_server.__main__ import parse
from rollyard.errors import InvalidMessage, LaunchError
from rollyard.tokens import read_tokens
from tests.agent_server.nemo_gym.client import row, sampled
from tests.agent_server.nemo_gym.conftest import GymDoorProcess, OpenDoor
from tests.fuzz.cases import RUN_SECONDS, SEED, cases
from tests.fuzz.schemathesis_run import Schemathesis
from tests.llm_fixtures import ROOT, MortalLLM, label
from tests.waiting import until

OPTIONS = ["--server-id", "agent-1", "--orchestrator", "http://127.0.0.1:1", "--model", "/m"]
OPTIONS += ["--llm-server", "http://127.0.0.1:2"]
DOOR = ["--nemo-gym-port", "9000"]
CONFIG = ROOT / "tests" / "e2e" / "schemathesis.toml"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    tokens = tmp_path / "tokens"
    tokens.write_text("admin 0123456789abcdef\n")
    tokens.chmod(0o600)
    return tokens


def test_a_job_whose_caller_has_gone_ends(door: GymDoorProcess, slow_llm: str) -> None:
    client = door.start(slow_llm)

    def running() -> bool:
        return "rollyard_agent_slots_busy 1.0" in client.get("/metrics").text

    with client.running(row()):
        until("the job runs", running)
    until("it is gone", lambda: not running())
    until("the LLM server is free", lambda: "running 0" in requests.get(f"{slow_llm}/metrics").text)


def test_a_row_waits_for_llm_servers_that_are_not_ready(
    door: GymDoorProcess, tmp_path: Path
) -> None:
    llm = MortalLLM(tmp_path, "--tool-rate", "1")
    try:
        client = door.start(llm.url)
        llm.die()
        with ThreadPoolExecutor() as pool:
            answering = pool.submit(client.run, row())
            assert not wait([answering], timeout=1).done
            llm.start()
            label(llm.url, 0)
            answer = answering.result()
    finally:
        llm.die()
    assert answer.status_code == 200, answer.text
    sampled(answer.json()["response"]["output"])


@pytest.mark.timeout(RUN_SECONDS)
def test_the_door_does_what_its_description_says(
    door: GymDoorProcess, llm: str, token_file: Path, tmp_path: Path
) -> None:
    url = door.start(llm, access=("--token-file", str(token_file))).url
    token = read_tokens(token_file).widest
    report = Schemathesis(f"{url}/openapi.json", CONFIG, token, tmp_path).run(
        SEED, "--phases", "fuzzing", "--max-examples", str(cases(20))
    )
    assert report["operations"]["tested"] == report["operations"]["total"]
    log = door.log.read_text()
    assert "request_failed" not in log
    assert "Traceback" not in log


def test_the_door_is_shut_unless_it_is_asked_for() -> None:
    settings = parse(OPTIONS)
    assert (settings.nemo_gym, settings.door_binds) == (None, ())


def test_the_door_has_what_its_options_say() -> None:
    limits = ["--nemo-gym-slots", "5", "--nemo-gym-turns", "7", "--nemo-gym-seconds", "60"]
    settings = parse([*OPTIONS, *DOOR, *limits])
    assert settings.nemo_gym is not None
    door = settings.nemo_gym.door
    assert (door.share, settings.nemo_gym.max_turns, door.job_seconds) == (5, 7, 60.0)
    assert [bind.port for bind in settings.door_binds] == [9000]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slots", "1"], "cannot have 0 of 1 slots"),
        (["--port", "9000"], "cannot have port 9000"),
        (["--nemo-gym-turns", "0"], "a turn at least"),
    ],
)
def test_a_door_that_cannot_be_is_refused(options: list[str], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        parse([*OPTIONS, *DOOR, *options])


def test_an_agent_server_has_one_door() -> None:
    with pytest.raises(InvalidMessage, match="one door"):
        parse([*OPTIONS, *DOOR, "--prorl-port", "9001"])


def test_only_what_is_said_twice_listens_beyond_loopback_without_tokens(token_file: Path) -> None:
    options = [*OPTIONS, *DOOR, "--host", "0.0.0.0", "--token-file", str(token_file)]
    found = []
    for more in ([], ["--nemo-gym-open"], ["--nemo-gym-open", "--insecure"]):
        door = parse([*options, *more]).nemo_gym
        assert door is not None
        found.append((door.door.bind.host, bool(door.door.tokens)))
    assert found == [("0.0.0.0", True), ("127.0.0.1", False), ("0.0.0.0", False)]


def test_a_door_that_is_not_open_wants_a_token(
    new_door: OpenDoor, llm: str, token_file: Path
) -> None:
    client = new_door(llm, tokens=read_tokens(token_file))
    assert client.run(row()).status_code == 200
    assert requests.post(f"{client.url}/run", json=row(), timeout=60).status_code == 401
