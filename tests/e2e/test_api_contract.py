"""Services do what their /openapi.json says, and swell from nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.service import SENDERS
from rollyard import Client
from rollyard.tokens import read_tokens
from tests.deployment_fixtures import RunningDeployment

ROOT = Path(__file__).parents[2]
SEED = 20261121
MIN_REQUESTS = 1000
RUN_SECONDS = 400
MAX_GROWTH = 64 * 2**20
MAX_NEW_THREADS = SENDERS + 16
"""Senders start when first needed; beside them, one caller at a time needs few."""


class Schemathesis:
    """Runs against one service of a deployment, with the token that may do everything."""

    def __init__(self, deployment: RunningDeployment, url: str, directory: Path) -> None:
        self._url = f"{url}/openapi.json"
        self._directory = directory
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROLLYARD_TEST_TOKEN": read_tokens(deployment.directory / "tokens").widest,
        }

    def run(self, seed: int, *options: str) -> dict[str, Any]:
        """Its report. Fails the test with what it found, and how to see it again."""
        report = self._directory / f"report-{seed}.json"
        command = [
            *(str(Path(sys.executable).with_name("st")), "--config-file"),
            *(str(Path(__file__).with_name("schemathesis.toml")), "run", self._url),
            *("--seed", str(seed), "--generation-database", "none", "--no-color", "--no-shrink"),
            *("--report", "json", "--report-json-path", str(report), *options),
        ]
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, f"seed {seed}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
        found: dict[str, Any] = json.loads(report.read_text())
        return found


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
    report = Schemathesis(battered_deployment, server.url, tmp_path).run(
        SEED, "--max-examples", "25"
    )
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert Client(battered_deployment.url).status().servers, "it was broken by what it was sent"
    log = (battered_deployment.directory / "logs" / "agent-0.log").read_text()
    assert "request_failed" not in log


@pytest.mark.timeout(2 * RUN_SECONDS)
def test_the_orchestrator_does_what_its_description_says(
    battered_deployment: RunningDeployment, tmp_path: Path
) -> None:
    schemathesis = Schemathesis(battered_deployment, battered_deployment.url, tmp_path)
    schemathesis.run(SEED - 1, "--phases", "fuzzing", "--max-examples", "3")  # warm
    orchestrator = battered_deployment.member("-m orchestrator ")
    redis = battered_deployment.member("valkey-server")
    workers = orchestrator.children()
    before = [sizes(process) for process in (orchestrator, redis)]

    report = schemathesis.run(SEED, "--max-examples", "10")

    assert report["test_cases"]["generated"] >= MIN_REQUESTS
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert orchestrator.children() == workers, "a worker died"
    for process, (bytes_then, threads_then) in zip((orchestrator, redis), before, strict=True):
        bytes_now, threads_now = sizes(process)
        assert bytes_now - bytes_then < MAX_GROWTH
        assert threads_now - threads_then <= MAX_NEW_THREADS
    log = (battered_deployment.directory / "logs" / "orchestrator.log").read_text()
    assert "request_failed" not in log
