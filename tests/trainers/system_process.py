"""A trainer as a process of the operating system, which SIGKILL ends.

It is forked from one that has imported the trainers already.
"""

import importlib
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import torch

from rollyard.client import Client
from rollyard.messages import Sampling
from tests.trainers.contract import GROUP_SIZE, TEMPERATURE, Adapter, Start, TrainedRow
from tests.trainers.served import served
from tests.trainers.training import Given, Training, rows

DEADLINE_SECONDS = 60.0


class Record(msgspec.Struct, frozen=True):
    """A line of `steps.jsonl`."""

    number: int
    rows: list[TrainedRow]


@dataclass
class KilledAfter:
    """Processes die so many seconds after a call to the orchestrator, counted from 1."""

    call: int
    seconds: float
    processes: list[BaseProcess] = field(default_factory=list, init=False, repr=False)
    calls: int = field(default=0, init=False, repr=False)

    def called(self) -> None:
        self.calls += 1
        if self.calls == self.call:
            for process in self.processes:
                threading.Timer(self.seconds, process.kill).start()


def run_system_process(
    training: Training, kill: KilledAfter | None = None, *, processes: int = 1
) -> bool:
    """Run the next process, or several that train together, to the end, or until it is killed.
    Returns whether it was."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainers.system_process", *_adapters()])
    kill = kill or KilledAfter(0, 0.0)
    with served(training.orchestrator, kill.called) as url:
        together = _together(processes)
        kill.processes = [
            context.Process(target=_train, args=(training.given, url, {**together, "RANK": rank}))
            for rank in map(str, range(processes))
        ]
        for process in kill.processes:
            process.start()
        for process in kill.processes:
            process.join(DEADLINE_SECONDS)
    ended = {process.exitcode for process in kill.processes}
    assert ended in ({0}, {-signal.SIGKILL}), f"{ended} after up to {DEADLINE_SECONDS:g} s"
    _read_records(training)
    if ended == {0}:
        data = (training.directory / "weights-0.json").read_bytes()
        training.weights = msgspec.json.decode(data, type=list[float])
    return ended != {0}


def _read_records(training: Training) -> None:
    """Put together what all processes trained on in each step."""
    for rank, file in enumerate(sorted(training.directory.glob("steps-*.jsonl"))):
        mine: list[list[TrainedRow]] = []
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                record = msgspec.json.decode(line, type=Record)
                mine[record.number :] = [record.rows]
        before = training.trained if rank else [[]] * len(mine)
        # Those that were killed may have come one step further than the others.
        training.trained = [[*a, *b] for a, b in zip(before, mine, strict=False)]


def _together(processes: int) -> dict[str, str]:
    """Environment of processes that train together, as `torchrun` gives it."""
    if processes == 1:
        return {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "WORLD_SIZE": str(processes),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }


def _adapters() -> list[str]:
    return [f"tests.trainers.adapters.{path.stem}" for path in _folder().glob("[a-z]*.py")]


def _folder() -> Path:
    return Path(__file__).parent / "adapters"


def _train(given: Given, url: str, environment: dict[str, str]) -> None:
    torch.set_num_threads(1)
    os.environ |= environment
    rank = environment["RANK"]
    adapter: Adapter = importlib.import_module(f"tests.trainers.adapters.{given.adapter}").ADAPTER

    def stepped(number: int, trained: Sequence[TrainedRow]) -> None:
        with (given.directory / f"steps-{rank}.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(Record(number, list(trained))) + b"\n")

    with Client(url, token="none", show_progress=False) as client:
        run: Any = None
        if rank == "0":
            run = client.run(
                iter(rows(given.rows)),
                run_id="run",
                group_size=GROUP_SIZE,
                sampling=Sampling(temperature=TEMPERATURE),
                max_staleness=adapter.max_staleness,
            )
        start = Start(client, run, given.directory, given.policy_dir, given.steps, stepped)
        trainer = adapter.trainer(start)
        trainer.train()
        weights = msgspec.json.encode(list(trainer.weights()))
        (given.directory / f"weights-{rank}.json").write_bytes(weights)
