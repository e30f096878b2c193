"""The batch script of a job."""

import subprocess
from pathlib import Path

import pytest

from launch.fleet import FleetSettings
from launch.slurm.job import nodes_command
from launch.slurm.render import batch_script
from launch.slurm.settings import SlurmJob
from rollyard.errors import LaunchError

FLEET = FleetSettings(
    model=Path("/models/policy"), directory=Path("/jobs/a b"), queues=Path("/fast")
)


def script_of(**given: object) -> str:
    job = SlurmJob(fleet=FLEET, command="python train.py", **given)  # type: ignore[arg-type]
    return batch_script(job, programs=Path("/venv/bin"), submit_directory=Path("/home/me"))


def options_of(script: str) -> list[list[str]]:
    """sbatch's options of each component."""
    lines = [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]
    text = "\n".join(lines).split("\nhetjob\n")
    return [component.splitlines() for component in text]


def test_nodes_with_and_without_gpus_are_components_of_one_job() -> None:
    gpus, cpus = options_of(
        script_of(
            gpu_nodes=4, cpu_nodes=15, gpu_options=("--partition=a100",), time_limit="4:00:00"
        )
    )
    assert {"--nodes=4", "--gres=gpu:8", "--partition=a100"} < {*gpus}
    assert "--nodes=15" in cpus
    assert not [option for option in cpus if "gpu" in option or "a100" in option]
    assert {"--no-kill", "--requeue", "--signal=B:USR1@120", "--time=4:00:00"} < {*gpus} & {*cpus}


@pytest.mark.parametrize("counts", [{"gpu_nodes": 2}, {"gpu_nodes": 0, "cpu_nodes": 2}])
def test_nodes_of_one_kind_are_an_ordinary_job(counts: dict[str, int]) -> None:
    assert len(options_of(script_of(**counts))) == 1


def test_the_script_is_clean_shell() -> None:
    script = script_of(gpu_nodes=1, cpu_nodes=1)
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "-"], input=script, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_a_trainers_command_is_not_part_of_the_script() -> None:
    assert "train.py" not in script_of()


def test_steps_are_of_all_components() -> None:
    job = SlurmJob(fleet=FLEET, command="")
    assert "--het-group=0,1" in nodes_command(job, {"SLURM_HET_SIZE": "2"})
    assert not [word for word in nodes_command(job, {}) if "het-group" in word]


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(LaunchError, match="not an option of sbatch"):
        SlurmJob(fleet=FLEET, command="", options=("partition=gpu",))
    with pytest.raises(LaunchError, match="at least one node"):
        SlurmJob(fleet=FLEET, command="", gpu_nodes=0)
