"""Services do what their /openapi.json says, and swell from nothing."""

import json
from pathlib import Path

import psutil
import pytest

from orchestrator.service import SENDERS
from rollyard import Client
from rollyard.tokens import read_tokens
from tests.deployment_fixtures import RunningDeployment
from tests.fuzz.cases import RUN_SECONDS, SEED, cases
from tests.fuzz.schemathesis_run import Schemathesis

CONFIG = Path(__file__).with_name("schemathesis.toml")
MIN_REQUESTS = 1000
MAX_GROWTH = 64 * 2**20
MAX_NEW_THREADS = SENDERS + 16
"""Senders start when first needed; beside them, one caller at a time needs few."""


def described(deployment: RunningDeployment, url: str, directory: Path) -> Schemathesis:
    """Runs against one service of a deployment, with the token that may do everything."""
    token = read_tokens(deployment.directory / "tokens").widest
    return Schemathesis(f"{url}/openapi.json", CONFIG, token, directory)


def sizes(process: psutil.Process) -> tuple[int, int]:
    """Resident bytes and threads, with those of its children."""
    family = [process, *process.children(recursive=True)]
    return sum(p.memory_info().rss for p in family), sum(p.num_threads() for p in family)


@pytest.mark.timeout(RUN_SECONDS)
def test_an_agent_server_does_what_its_description_says(
    battered_deployment: RunningDeployment, tmp_path: Path
) -> None:
    """It comes first: the orchestrator's description also says how to give this server work."""
    (server,) = Client(battered_deployment.url).status().servers
    report = described(battered_deployment, server.url, tmp_path).run(
        SEED, "--max-examples", str(cases(25))
    )
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert Client(battered_deployment.url).status().servers, "it was broken by what it was sent"
    log = (battered_deployment.directory / "logs" / "agent-0.log").read_text()
    assert "request_failed" not in log


@pytest.mark.timeout(RUN_SECONDS)
def test_a_prorl_door_does_what_its_description_says(
    battered_deployment: RunningDeployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, urls = battered_deployment.door_url, json.loads(battered_deployment.line)
    monkeypatch.setenv("ROLLYARD_TEST_LLM_SERVER", urls["llm-0"])
    report = described(battered_deployment, door, tmp_path).run(
        SEED, "--phases", "fuzzing", "--max-examples", str(cases(5))
    )
    assert report["operations"]["tested"] == report["operations"]["total"]
    log = (battered_deployment.directory / "logs" / "agent-0.log").read_text()
    assert "request_failed" not in log
    assert "Traceback" not in log


@pytest.mark.timeout(2 * RUN_SECONDS)
def test_the_orchestrator_does_what_its_description_says(
    battered_deployment: RunningDeployment, tmp_path: Path
) -> None:
    schemathesis = described(battered_deployment, battered_deployment.url, tmp_path)
    schemathesis.run(SEED - 1, "--phases", "fuzzing", "--max-examples", "3")  # warm
    orchestrator = battered_deployment.member("-m orchestrator ")
    redis = battered_deployment.member("valkey-server")
    workers = orchestrator.children()
    before = [sizes(process) for process in (orchestrator, redis)]

    report = schemathesis.run(SEED, "--max-examples", str(cases(10)))

    assert report["test_cases"]["generated"] >= MIN_REQUESTS
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert orchestrator.children() == workers, "a worker died"
    for process, (bytes_then, threads_then) in zip((orchestrator, redis), before, strict=True):
        bytes_now, threads_now = sizes(process)
        assert bytes_now - bytes_then < MAX_GROWTH
        assert threads_now - threads_then <= MAX_NEW_THREADS
    log = (battered_deployment.directory / "logs" / "orchestrator.log").read_text()
    assert "request_failed" not in log
