"""A trainer as a process of the operating system, which SIGKILL ends.

It is forked from one that has imported the trainers already.
"""

import importlib
import multiprocessing
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import torch

from rollyard.client import Client
from rollyard.messages import Sampling
from tests.trainers.contract import GROUP_SIZE, TEMPERATURE, Adapter, Start, TrainedRow
from tests.trainers.served import served
from tests.trainers.training import Training, rows

DEADLINE_SECONDS = 60.0


class Record(msgspec.Struct, frozen=True):
    """A line of `steps.jsonl`."""

    number: int
    rows: list[TrainedRow]


@dataclass
class KilledAfter:
    """A process dies so many seconds after a call to the orchestrator, counted from 1."""

    call: int
    seconds: float
    process: BaseProcess | None = field(default=None, init=False, repr=False)
    calls: int = field(default=0, init=False, repr=False)

    def called(self) -> None:
        self.calls += 1
        if self.calls == self.call and self.process is not None:
            threading.Timer(self.seconds, self.process.kill).start()


def run_system_process(training: Training, kill: KilledAfter | None = None) -> bool:
    """Run the next process to its end, or until it is killed. Returns whether it was."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainers.system_process", *_adapters()])
    kill = kill or KilledAfter(0, 0.0)
    with served(training.orchestrator, kill.called) as url:
        given = (training.adapter.name, url, training.directory, training.policy_dir)
        kill.process = context.Process(target=_train, args=(*given, training.steps, training.rows))
        kill.process.start()
        kill.process.join(DEADLINE_SECONDS)
        ended = kill.process.exitcode
    assert ended in (0, -signal.SIGKILL), f"{ended} after up to {DEADLINE_SECONDS:g} s"
    records = training.directory / "steps.jsonl"
    for line in records.read_bytes().splitlines(keepends=True) if records.exists() else ():
        if line.endswith(b"\n"):
            record = msgspec.json.decode(line, type=Record)
            training.trained[record.number :] = [record.rows]
    weights = training.directory / "weights.json"
    if ended == 0:
        training.weights = msgspec.json.decode(weights.read_bytes(), type=list[float])
    return ended != 0


def _adapters() -> list[str]:
    return [f"tests.trainers.adapters.{path.stem}" for path in _folder().glob("[a-z]*.py")]


def _folder() -> Path:
    return Path(__file__).parent / "adapters"


def _train(
    name: str, url: str, directory: Path, policy_dir: Path, steps: int, row_count: int
) -> None:
    torch.set_num_threads(1)
    adapter: Adapter = importlib.import_module(f"tests.trainers.adapters.{name}").ADAPTER

    def stepped(number: int, trained: Sequence[TrainedRow]) -> None:
        with (directory / "steps.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(Record(number, list(trained))) + b"\n")

    with Client(url, token="none", show_progress=False) as client:
        run = client.run(
            iter(rows(row_count)),
            run_id="run",
            group_size=GROUP_SIZE,
            sampling=Sampling(temperature=TEMPERATURE),
            max_staleness=adapter.max_staleness,
        )
        start = Start(client, run, directory, policy_dir, steps, stepped)
        trainer = adapter.trainer(start)
        trainer.train()
        weights = msgspec.json.encode(list(trainer.weights()))
        (directory / "weights.json").write_bytes(weights)
