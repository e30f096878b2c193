"""One fleet on the machines of a cluster of Ray, from its plan to the end of its trainer.

- Every machine is held by one worker of Ray, which reserves its GPUs and runs its part of the plan.
- The trainer starts once all parts are ready, and everything ends with it.
- A node that ends, or that Ray lost with its worker or its machine, is started again on the machine
  with its address, with rising waits. Meanwhile the fleet is planned again without it.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from launch.documents import as_text
from launch.fleet import FLEET, REDIS_PASSWORD, TOKENS, FleetPlan, FleetSettings, write_fleet
from launch.fleet_keeper import LOOK_SECONDS, FleetKeeper
from launch.fleet_start import await_fleet, write_environment
from launch.node_command import FAILED
from launch.processes import Processes, Started, how_it_ended
from launch.ray.machines import RayMachine, WantedMachines, chosen, planned
from launch.restarts import Part, PartState, RestartPolicy
from launch.up import tell_operator
from rollyard.errors import LaunchError
from rollyard.tokens import make_password_file, make_token_file, read_secret

TRAINER_LEVEL = 1
PLACE_SECONDS = 60.0
"""Time for Ray to start a worker on a machine that has what it asks for."""
FOR_EVER = RestartPolicy(max_deaths=sys.maxsize)


class NodeHold(Protocol):
    def is_placed(self) -> bool: ...
    def how_it_ended(self) -> str: ...


H = TypeVar("H", bound=NodeHold)


class MachineCluster(Protocol[H]):
    """Machines that hold nodes."""

    def machines(self) -> list[RayMachine]: ...
    def hold(self, machine: RayMachine, files: Mapping[str, str], directory: str) -> H: ...
    def stop(self, holds: Sequence[H]) -> None: ...


class RayFleet(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet on Ray is made from."""

    fleet: FleetSettings
    wanted: WantedMachines = WantedMachines()
    command: str = ""
    """The trainer, a command of the shell. Empty to serve until Ctrl-C."""
    trainer_seconds: float = 60.0
    """Time for the trainer to end after its SIGTERM."""


class RayRun(Generic[H]):
    """One life of a fleet. Its only process here is the trainer."""

    def __init__(self, asked: RayFleet, cluster: MachineCluster[H], processes: Processes) -> None:
        self._asked = asked
        self._cluster = cluster
        self._processes = processes
        self._holds: dict[str, H] = {}
        self._parts: dict[str, Part] = {}
        self._gpus: dict[str, int] = {}

    def work(self) -> int:
        """Everything, until the trainer ends. Returns its exit code. Raises `LaunchError`."""
        machines = chosen(self._cluster.machines(), self._asked.wanted)
        fleet = planned(machines, self._asked.fleet)
        self._gpus = {each.address: each.gpus for each in machines}
        self._prepare(fleet)
        for machine in machines:
            self._hold(fleet, machine)
        await_fleet(fleet, self._check)
        sys.stdout.write(write_environment(fleet))
        sys.stdout.flush()
        tell_operator(f"all {len(machines)} nodes are ready")
        trainer = self._start_trainer(fleet)
        keeper = FleetKeeper(fleet, tell_operator, shared=False)
        try:
            while trainer is None or trainer.process.poll() is None:
                self._processes.wait_for_exits(LOOK_SECONDS)
                self._hold_again(fleet)
                keeper.look()
        finally:
            keeper.close()
        tell_operator(f"the trainer {how_it_ended(trainer)}")
        code = trainer.process.returncode
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        """Stop the trainer in its own time, then the nodes in theirs. Nothing interrupts it."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self._processes.stop_level(TRAINER_LEVEL, self._asked.trainer_seconds)
        self._cluster.stop([*self._holds.values()])
        self._holds.clear()

    def _prepare(self, fleet: FleetPlan) -> None:
        settings = fleet.settings
        settings.directory.mkdir(parents=True, exist_ok=True)
        make_token_file(settings.token_file)
        make_password_file(settings.redis_password_file)
        for node in fleet.nodes:  # what an earlier life has left
            (settings.directory_of(node) / FAILED).unlink(missing_ok=True)
        write_fleet(fleet)

    def _hold(self, fleet: FleetPlan, machine: RayMachine) -> None:
        settings = fleet.settings
        files = {FLEET: as_text(fleet), TOKENS: read_secret(settings.token_file)}
        if machine.address == fleet.head:
            files[REDIS_PASSWORD] = read_secret(settings.redis_password_file)
        hold = self._cluster.hold(machine, files, str(settings.directory))
        self._holds[machine.address] = hold
        part = self._parts.get(machine.address, Part(name=machine.address, kind="a node"))
        now = time.monotonic()
        self._parts[machine.address] = part.started(now).became_ready(now)

    def _check(self) -> None:
        now = time.monotonic()
        for node, hold in self._holds.items():
            if reason := hold.how_it_ended():
                raise LaunchError(f"node {node} could not start: it {reason}")
            if now - self._parts[node].since > PLACE_SECONDS and not hold.is_placed():
                raise LaunchError(
                    f"Ray has started no worker on {node} within {PLACE_SECONDS:g} s",
                    fix="`ray status` shows who has its GPUs and CPUs",
                )

    def _hold_again(self, fleet: FleetPlan) -> None:
        """Start again what has ended, where its machine is there and its time has come."""
        now = time.monotonic()
        self._note_ends(now)
        due = [
            part.name
            for part in self._parts.values()
            if part.state is PartState.WAITING and part.starts_at <= now
        ]
        if not due:
            return
        there = {each.address: each for each in self._cluster.machines()}
        for node in due:
            if node in there:
                machine = msgspec.structs.replace(there[node], gpus=self._gpus[node])
                self._hold(fleet, machine)

    def _note_ends(self, now: float) -> None:
        for node, hold in list(self._holds.items()):
            if reason := hold.how_it_ended():
                self._cluster.stop([self._holds.pop(node)])
                self._parts[node] = self._parts[node].died(reason, now, FOR_EVER)
                tell_operator(f"{node} {reason}; it starts again")

    def _start_trainer(self, fleet: FleetPlan) -> Started | None:
        if not self._asked.command:
            return None
        os.environ.update(fleet.environment())
        return self._processes.start_again(
            "the trainer", ("bash", "-c", self._asked.command), level=TRAINER_LEVEL
        )
