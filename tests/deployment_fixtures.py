"""Whole deployments, started by the `rollyard` command as a user starts them."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launch.free_ports import free_ports
from tests.processes import lives

UP_SECONDS = 240.0
DOWN_SECONDS = 30.0
SCRIPTED = ("--llm", "scripted", "--slots", "4")
SMALL = (*SCRIPTED, "--agent-servers", "1")
"""Each agent server computes for seconds until it is ready: it imports transformers."""


class RunningDeployment:
    """A `rollyard up` with, by default, one LLM server and two agent servers."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        first = free_ports(agent_servers=4, llm_servers=2).orchestrator  # two for doors
        self.url = f"http://127.0.0.1:{first}"
        self.door_url = f"http://127.0.0.1:{first + 1}"
        """URL of the first ProRL door, with `--prorl`."""
        self.errors = directory.with_suffix(".err")
        command = [sys.executable, "-m", "launch.cli", "up", "--directory", str(directory)]
        with self.errors.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, "--port", str(first), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
            )
        self.line = ""
        """What it said on stdout: JSON, process name to URL."""
        self.members: dict[psutil.Process, str] = {}
        """Each process of the deployment, with its command line."""

    def wait_until_up(self) -> None:
        watcher = self.process.stdout
        assert watcher is not None
        self.line = (
            watcher.readline().decode()
        )  # `up` prints one line of JSON on stdout once all is ready
        if not self.line:
            pytest.fail(f"rollyard up ended: {self.errors.read_text()[-2000:]}")
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no command line
                self.members[child] = " ".join(child.cmdline())

    def member(self, command_part: str) -> psutil.Process:
        """The process whose command line contains `command_part`, nearest to the launcher."""
        found = [process for process, command in self.members.items() if command_part in command]
        return min(found, key=lambda process: process.create_time())

    def wait_until_down(self) -> int:
        return self.process.wait(DOWN_SECONDS)

    def survivors(self) -> list[psutil.Process]:
        """Processes of the deployment that still run."""
        _, alive = psutil.wait_procs(list(self.members), timeout=0.5)
        return list(filter(lives, alive))

    def last_words(self) -> str:
        return self.errors.read_text().strip().splitlines()[-1]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.wait_until_down()


StartDeployment = Callable[..., RunningDeployment]


@pytest.fixture
def start_deployment(tmp_path: Path) -> Iterator[StartDeployment]:
    """Starts deployments, and stops them all at the end of the test."""
    deployments: list[RunningDeployment] = []

    def start(*options: str) -> RunningDeployment:
        deployments.append(RunningDeployment(tmp_path / f"deployment-{len(deployments)}", *options))
        deployments[-1].wait_until_up()
        return deployments[-1]

    yield start
    for deployment in deployments:
        deployment.stop()


@contextlib.contextmanager
def _running(directory: Path, *options: str) -> Iterator[RunningDeployment]:
    deployment = RunningDeployment(directory / "deployment", *options)
    try:
        deployment.wait_until_up()
        yield deployment
    finally:
        deployment.stop()


@pytest.fixture(scope="session")
def lasting_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDeployment]:
    """A scripted deployment for all tests that leave it as it was."""
    with _running(tmp_path_factory.mktemp("lasting"), *SCRIPTED) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def battered_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDeployment]:
    """A small scripted deployment with a ProRL door for the tests of a module, each of which it
    must withstand."""
    with _running(tmp_path_factory.mktemp("battered"), *SMALL, "--prorl") as deployment:
        yield deployment


@pytest.fixture
def scripted_deployment(start_deployment: StartDeployment) -> RunningDeployment:
    """A small scripted deployment that the test may end."""
    return start_deployment(*SMALL)
