"""What a job tells of itself: its state in Slurm's queue, its nodes' processes, its logs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from launch.fleet import FLEET, FleetPlan, read_fleet
from launch.fleet_start import ENVIRONMENT
from launch.local import LOGS
from launch.node_command import why_failed
from launch.output import Listing
from launch.parts import PartStatus, read_parts
from launch.slurm.settings import JOB_LOG, TRAINER_LOG, check_directory
from launch.slurm.submission import queue_state, submitted_id
from rollyard.messages import Message

_OVER = "over"


class SlurmNodeStatus(Message, frozen=True, kw_only=True):
    """One node of a job."""

    node: str
    address: str
    failed: str = ""
    """The sentence with which it ended; empty if it did not."""
    parts: tuple[PartStatus, ...] = ()


class SlurmJobStatus(Message, frozen=True, kw_only=True):
    """A job as Slurm and its directory tell of it."""

    job_id: str
    state: str
    """Its state in Slurm's queue."""
    ready: bool
    """Whether the trainer could be started."""
    nodes: tuple[SlurmNodeStatus, ...] = ()

    def shown(self) -> Sequence[Listing | str]:
        listing = Listing("node", "address", "processes", "restarts", "ended because")
        for node in self.nodes:
            states = [f"{part.name} {part.state.replace('_', ' ')}" for part in node.parts]
            restarts = str(sum(part.restarts for part in node.parts))
            listing.add(node.node, node.address, ", ".join(states) or "-", restarts, node.failed)
        ready = "ready" if self.ready else "not ready"
        return [f"job {self.job_id} is {self.state}; its fleet is {ready}", listing]


def state_of(directory: Path) -> SlurmJobStatus:
    """The job of a directory. Raises `LaunchError` if there is none."""
    check_directory(directory)
    nodes: tuple[SlurmNodeStatus, ...] = ()
    if (directory / FLEET).exists():
        fleet = read_fleet(directory)
        nodes = tuple(_node(fleet, node) for node in fleet.nodes)
    state = queue_state(directory).lower()
    return SlurmJobStatus(
        job_id=submitted_id(directory),
        state=state or _OVER,
        ready=bool(state) and (directory / ENVIRONMENT).exists(),
        nodes=nodes,
    )


def _node(fleet: FleetPlan, node: str) -> SlurmNodeStatus:
    return SlurmNodeStatus(
        node=node,
        address=fleet.addresses[node],
        failed=why_failed(fleet, node),
        parts=read_parts(fleet.settings.directory_of(node)),
    )


def last_lines(directory: Path, lines: int) -> Iterator[tuple[Path, str]]:
    """Each log of the job, with its last lines. Raises `LaunchError` if there is no job."""
    check_directory(directory)
    own = (directory / JOB_LOG, directory / TRAINER_LOG)
    of_nodes = sorted(directory.glob(f"nodes/*/{LOGS}/*.log"))
    for path in (*filter(Path.exists, own), *of_nodes):
        text = path.read_text(errors="replace")
        yield path.relative_to(directory), "\n".join(text.splitlines()[-lines:])
