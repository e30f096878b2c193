"""`rollyard rewards` serves what docs/rewards.md says, and leaves nothing behind."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest
import requests

from launch.free_ports import free_port
from launch.lock import locked
from launch.rewards import RewardsPlan
from tests.llm_fixtures import ROOT
from tests.processes import lives

PAGE = (ROOT / "docs/rewards.md").read_text()


def documented(language: str, after: str) -> str:
    """The first block in this language after this text."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.partition(after)[2], re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory in which the documented grader is installed."""
    (tmp_path / "capitals.py").write_text(documented("python", "## Graders"))
    information = tmp_path / "capitals-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: capitals\nVersion: 1\n")
    _, declared = documented("toml", "## Graders").replace('"', "").splitlines()
    (information / "entry_points.txt").write_text(f"[rollyard.graders]\n{declared}\n")
    return tmp_path


class Running:
    """A started command."""

    def __init__(self, package: Path, *options: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "launch.cli", "rewards"),
                *("--directory", str(package / "data"), "--port", self.url.rpartition(":")[2]),
                *options,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(package)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def stdout(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def running(package: Path) -> Iterator[Running]:
    started = Running(package)
    yield started
    started.process.kill()
    started.process.communicate()


def test_the_documented_task_gets_the_documented_answer(running: Running) -> None:
    assert json.loads(running.stdout.readline()) == {"rewards": running.url}
    (line,) = re.findall(r"^    (curl [^\n]*\\\n[^\n]*)$", PAGE, re.MULTILINE)
    _, url, option, body = shlex.split(line.replace("\\\n", ""))
    assert option == "--json"
    answer = requests.post(
        url.replace("http://127.0.0.1:8388", running.url),
        body,
        headers={"Content-Type": "application/json"},
        timeout=30,
    )
    assert answer.text.strip() == documented("json", "## A reward service").strip()
    family = running.family()
    assert len(family) >= 5  # Redis, gunicorn and its worker, the zygote, a worker
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 130
    assert not list(filter(lives, family))


def test_it_grades_over_tls_with_a_certificate_that_it_makes(package: Path) -> None:
    running = Running(package, "--tls")
    try:
        url = running.url.replace("http", "https")
        assert json.loads(running.stdout.readline()) == {"rewards": url}
        ca_file = str(package / "data" / "tls" / "ca.pem")
        assert requests.get(f"{url}/readyz", verify=ca_file, timeout=30).status_code == 200
    finally:
        running.process.kill()
        running.process.communicate()


def test_a_second_one_in_the_same_directory_is_refused(package: Path) -> None:
    with locked(package / "data"):
        second = Running(package)
        _, said = second.process.communicate(timeout=60)
    assert second.process.returncode == 1
    assert "another rollyard" in said


def test_its_password_is_in_no_command_line() -> None:
    plan = RewardsPlan(directory=Path("data"), port=1, redis_port=2, options=("--workers", "3"))
    redis, service = plan.processes()
    assert redis.command[-2:] == ("--password-file", "data/redis-password")
    assert service.command[-2:] == ("--workers", "3")
    assert "redis://rewards@127.0.0.1:2" in service.command
