"""The variables with which NeMo-RL's `ray.sub` starts Rollyard on its nodes, as shell."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from launch.documents import write_document
from launch.fleet_start import ENVIRONMENT
from launch.slurm.beside import BesideJob
from launch.slurm.settings import BESIDE
from llm_servers.checkpoint import check_model
from rollyard.errors import LaunchError

_OF_THE_IMAGE = Path("/usr")
"""What is below is the container's own, also if the Python of this machine is."""
_SOFTWARE = Path(__file__).parents[2]


def prepare_beside(job: BesideJob, container: str) -> str:
    """Write what the nodes have to know, and return the exports. Raises `LaunchError`."""
    check_model(job.fleet.model)
    text = exports(job, container, Path(sys.executable).parent, mounts(needed_paths(job)))
    job.fleet.directory.mkdir(parents=True, exist_ok=True)
    write_document(job.fleet.directory / BESIDE, job)
    return text


def exports(job: BesideJob, container: str, programs: Path, mounted: Sequence[Path]) -> str:
    """Lines to source before `sbatch ray.sub`."""
    directory = job.fleet.directory
    command = ("exec", str(programs / "rollyard"), "slurm", "beside-node")
    variables = {
        "SANDBOX_CONTAINER": container,
        "SANDBOX_COMMAND": shlex.join((*command, "--directory", str(directory))),
        "SANDBOX_EXTRA_MOUNTS": ",".join(f"{path}:{path}" for path in mounted),
        "NEMO_SKILLS_SANDBOX_PORT": str(job.sandbox_port),
    }
    return "\n".join(
        (
            "# Source this before `sbatch ray.sub`. Let its MOUNTS have the directory, too:",
            f"#   {directory}:{directory}",
            "# and its COMMAND begin with:",
            f"#   source {shlex.quote(str(directory / ENVIRONMENT))}",
            *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            "",
        )
    )


def needed_paths(job: BesideJob) -> list[Path]:
    """What the services of a node read and write outside of their container."""
    fleet = job.fleet
    tls = fleet.tls
    given = (
        fleet.directory,
        fleet.queues,
        fleet.repositories,
        fleet.images,
        fleet.reward_token_file,
        *((tls.certificate, tls.key, tls.ca_file) if tls is not None else ()),
    )
    # A model of the hub is links to files elsewhere.
    model = {fleet.model, *(file.resolve().parent for file in fleet.model.iterdir())}
    software = (Path(sys.prefix), Path(sys.base_prefix), _SOFTWARE)
    return [*filter(None, given), *sorted(model), *software]


def mounts(paths: Iterable[Path]) -> list[Path]:
    """The fewest directories and files that have all of these. Raises `LaunchError`."""
    wanted = [path for path in dict.fromkeys(paths) if not path.is_relative_to(_OF_THE_IMAGE)]
    for path in wanted:
        if ":" in str(path) or "," in str(path):
            raise LaunchError(
                f"{path} cannot be mounted: its name has a colon or a comma",
                fix="give it another name",
            )
    return [
        path
        for path in wanted
        if not any(path != other and path.is_relative_to(other) for other in wanted)
    ]
