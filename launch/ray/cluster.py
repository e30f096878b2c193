"""The cluster of Ray to which this process is connected, and its workers that hold nodes.

This is the only module that imports Ray. What it starts ends with this process, whatever ends that.
"""

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from launch.ray.holder import STOP_SECONDS, NodeHolder
from launch.ray.machines import RayMachine
from rollyard.errors import LaunchError


class RayHold:
    """One worker that holds a node of the fleet."""

    def __init__(self, actor: Any, files: Mapping[str, str]) -> None:
        self._actor = actor
        self._placed = actor.is_here.remote()
        self._end = actor.run.remote(dict(files))

    def is_placed(self) -> bool:
        """Whether its machine has it."""
        done, _ = ray.wait([self._placed], timeout=0)
        return bool(done)

    def how_it_ended(self) -> str:
        """How the node ended, or was lost; empty while it runs or waits for its machine."""
        done, _ = ray.wait([self._end], timeout=0)
        if not done:
            return ""
        try:
            return str(ray.get(self._end))
        except RayError as error:
            return f"was lost by Ray ({' '.join(str(error).split())[:300]})"

    def begin_to_stop(self) -> Any:
        return self._actor.stop.remote()

    def remove(self) -> None:
        ray.kill(self._actor, no_restart=True)


class RayCluster:
    """Use as a context manager."""

    def __init__(self, address: str, cpus: float) -> None:
        self._address = address
        self._cpus = cpus

    def __enter__(self) -> "RayCluster":
        numbers = (signal.SIGINT, signal.SIGTERM)
        ours = {number: signal.getsignal(number) for number in numbers}
        try:
            ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RayError) as error:
            raise LaunchError(
                f"there is no cluster of Ray at {self._address}: {error}",
                fix="call this on a machine of the cluster, or name its head with --address; if it "
                "asks for tokens, set RAY_AUTH_MODE=token",
            ) from error
        for number, handler in ours.items():  # Ray has put its own in their place
            signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def machines(self) -> list[RayMachine]:
        """The machines that are there."""
        here = ray.get_runtime_context().get_node_id()
        return [
            RayMachine(
                ray_id=each["NodeID"],
                address=each["NodeManagerAddress"],
                gpus=int(each["Resources"].get("GPU", 0)),
                is_here=each["NodeID"] == here,
            )
            for each in ray.nodes()
            if each["Alive"]
        ]

    def hold(self, machine: RayMachine, files: Mapping[str, str], directory: str) -> RayHold:
        """Have the machine run its node, with the GPUs that Ray lends it."""
        actor = ray.remote(NodeHolder).options(
            num_cpus=self._cpus,
            num_gpus=machine.gpus,
            max_concurrency=2,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.ray_id, soft=False),
        )
        return RayHold(actor.remote(machine.address, directory), files)

    def stop(self, holds: Sequence[RayHold]) -> None:
        """Stop all at once, each in its order, and remove them."""
        stopping = [hold.begin_to_stop() for hold in holds]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=2 * STOP_SECONDS)
        for hold in holds:
            hold.remove()
