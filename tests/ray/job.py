"""A fleet of three machines, a trainer beside it, and whoever launched both."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from launch.free_ports import free_range
from tests.processes import lives
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TRAINER = ROOT / "tests" / "slurm" / "trainer.py"
ADDRESSES = ("127.0.0.21", "127.0.0.22", "127.0.0.23")
"""The first has no GPUs, the others have two each."""
PORTS = 12
READY_SECONDS = 180.0
GONE_SECONDS = 90.0


class RayJob:
    """What `command` launches, given `--directory`, `--port` and, unless it is to serve only, the
    trainer as `--command`."""

    def __init__(
        self, directory: Path, command: Sequence[str], variables: Mapping[str, str], *, trains: bool
    ) -> None:
        self.directory = directory / "fleet"
        self.trainer = directory / "trainer"
        self.port = free_range(PORTS).start
        trainer = f"{sys.executable} {TRAINER} --directory {self.trainer}"
        words = ("--directory", str(self.directory), "--port", str(self.port))
        self._log = directory / "launcher.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *words, *(("--command", trainer) if trains else ())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, what: str, sentence: str) -> None:
        def is_said() -> bool:
            assert self.process.poll() is None, self.log()
            return sentence in self.log()

        until(f"{what}: {self.log()}", is_said, READY_SECONDS)

    def batches(self) -> list[dict[str, Any]]:
        path = self.trainer / "batches"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_batch_of(self, what: str, servers: set[str]) -> dict[str, Any]:
        """A batch from now on whose results are of all these agent servers."""
        before = len(self.batches())

        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None, self.log()
            return [each for each in self.batches()[before:] if servers <= each["servers"].keys()]

        until(f"{what}: {self.log()}", found, READY_SECONDS)
        return found()[0]

    def node(self, address: str) -> psutil.Process:
        """The process of `rollyard node` there."""
        (found,) = (each for each in self.ours() if _words(each)[-5:-1] == self._call(address))
        return found

    def _call(self, address: str) -> list[str]:
        return ["--directory", str(self.directory), "--name", address]

    def ours(self) -> list[psutil.Process]:
        """All processes whose command line names the fleet's directory, or an address of its
        machines and one of its ports."""
        return [
            process
            for process in psutil.process_iter()
            if process.pid != self.process.pid and self._is_ours(_words(process)) and lives(process)
        ]

    def _is_ours(self, words: list[str]) -> bool:
        ports = {str(self.port + i) for i in range(PORTS)}
        named = any(str(self.directory) in word for word in words)
        return named or bool({*words} & {*ADDRESSES} and {*words} & ports)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(GONE_SECONDS)

    def assert_nothing_is_left(self) -> None:
        until(
            f"all has ended: {[_words(each) for each in self.ours()]}",
            lambda: not self.ours(),
            GONE_SECONDS,
        )
        for address in ADDRESSES:
            for port in range(self.port, self.port + PORTS):
                with socket.socket() as trial:
                    assert trial.connect_ex((address, port)) != 0, (address, port)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
