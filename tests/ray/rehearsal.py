"""`rollyard ray` without Ray: its machines are addresses of this one, and threads hold the nodes.

Two machines have two GPUs each, and one has none.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.cli import STOPPED, Interrupted
from launch.demo import DEMO_TOOL_CALLS, POLICY
from launch.engine import Engine, LLMKind
from launch.fleet import FleetSettings
from launch.processes import Processes
from launch.ray.holder import NodeHolder
from launch.ray.machines import RayMachine, WantedMachines
from launch.ray.run import RayFleet, RayRun
from tests.ray.job import ADDRESSES


class ThreadHold:
    """One thread that holds a node."""

    def __init__(self, holder: NodeHolder, files: Mapping[str, str]) -> None:
        self.holder = holder
        self._ended = ""
        self.thread = threading.Thread(target=self._run, args=(files,), daemon=True)
        self.thread.start()

    def _run(self, files: Mapping[str, str]) -> None:
        self._ended = self.holder.run(files)

    def is_placed(self) -> bool:
        return self.holder.is_here()

    def how_it_ended(self) -> str:
        return self._ended


class OneMachine:
    """The cluster."""

    def machines(self) -> list[RayMachine]:
        gpus = dict(zip(ADDRESSES, (0, 2, 2), strict=True))
        return [
            RayMachine(ray_id=f"ray-{address}", address=address, gpus=count)
            for address, count in gpus.items()
        ]

    def hold(self, machine: RayMachine, files: Mapping[str, str], directory: str) -> ThreadHold:
        return ThreadHold(NodeHolder(machine.address, directory), files)

    def stop(self, holds: Sequence[ThreadHold]) -> None:
        stopping = [threading.Thread(target=hold.holder.stop) for hold in holds]
        for thread in stopping:
            thread.start()
        for thread in (*stopping, *(hold.thread for hold in holds)):
            thread.join(60)


def interrupt(_signal: int, _frame: object) -> None:
    raise Interrupted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--command", default="")
    parser.add_argument("--port", type=int, required=True)
    flags = parser.parse_args()
    settings = FleetSettings(
        model=POLICY,
        tool_calls=DEMO_TOOL_CALLS,
        engine=Engine(kind=LLMKind.SCRIPTED, start_seconds=120),
        slots=4,
        directory=flags.directory,
        queues=flags.directory / "redis",
        tensor_parallel=2,
        port=flags.port,
    )
    asked = RayFleet(fleet=settings, wanted=WantedMachines(gpu_nodes=2), command=flags.command)
    signal.signal(signal.SIGTERM, interrupt)
    with Processes() as processes:
        run = RayRun(asked, OneMachine(), processes)
        try:
            code = run.work()
        except Interrupted:
            code = STOPPED
        finally:
            run.stop()
    sys.exit(code)


if __name__ == "__main__":
    main()
