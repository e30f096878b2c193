"""`rollyard demo`: start a deployment, train the example's tiny policy on it, stop it."""

from pathlib import Path

from rich.console import Console

from launch.local import running_deployment
from launch.plan import DeploymentSettings
from launch.processes import Processes, describe_exit
from launch.up import one_line
from rollyard.errors import LaunchError

CHECKOUT = Path(__file__).parent.parent
TRAINER = CHECKOUT / "examples" / "arithmetic" / "train.py"
POLICY = Path(__file__).parent / "policy"
"""The model that is served unless another is named: tiny, and able to call tools."""
DEMO_TOOL_CALLS = "bare"
"""Format in which that policy writes calls, which its chat template does not mention."""
TRAINER_LEVEL = 9
"""Level above all of the deployment's, so that the trainer is stopped first."""


def demo(deployment: DeploymentSettings, trainer_options: tuple[str, ...], console: Console) -> int:
    """Train on a new deployment, and return the trainer's exit code. Raises `LaunchError` outside a
    source checkout, and if a part of the deployment dies meanwhile.

    Stdout is the trainer's: its last line is the summary as JSON.
    """
    if not TRAINER.exists():
        raise LaunchError(
            "the demo's trainer comes with a source checkout, not with the package",
            fix="clone the repository, or train with a loop of your own on a `rollyard up`",
        )
    command = (
        str(deployment.engine.python),
        str(TRAINER),
        *("--url", deployment.orchestrator_url),
        *("--policy", str(deployment.model)),
        *("--work-dir", str(deployment.directory / "checkpoints")),
        *trainer_options,
    )
    processes = Processes()
    with (
        console.status("starting") as status,
        running_deployment(
            deployment, processes, lambda said: status.update(one_line(said)), fresh=True
        ),
    ):
        status.stop()
        trainer = processes.start("trainer", command, level=TRAINER_LEVEL)
        ended = processes.wait_for_first_exit()
        if ended is not trainer or trainer.process.returncode < 0:
            raise LaunchError(describe_exit(ended))
    return trainer.process.returncode
