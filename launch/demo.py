"""`rollyard demo`: start a deployment, train the example's tiny policy on it, stop it."""

from pathlib import Path

import msgspec
from rich.console import Console

from launch.local import running_deployment
from launch.plan import DeploymentSettings
from launch.processes import Processes, describe_exit
from launch.up import one_line
from rollyard.errors import LaunchError

CHECKOUT = Path(__file__).parent.parent
EXAMPLE = CHECKOUT / "examples" / "arithmetic"
POLICY = EXAMPLE / "policy"
TRAINER_LEVEL = 9
"""Level above all of the deployment's, so that the trainer is stopped first."""


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    deployment: DeploymentSettings
    output: Path
    """Directory for report.html and report.json."""
    started_at: float
    """Unix seconds; total_seconds counts from here."""
    trainer_options: tuple[str, ...] = ()


def demo(settings: DemoSettings, console: Console) -> int:
    """Train on a new deployment, and return the trainer's exit code. Raises `LaunchError` if a part
    of the deployment dies meanwhile.

    Stdout is the trainer's: its last line is the summary as JSON.
    """
    processes = Processes()
    with (
        console.status("starting") as status,
        running_deployment(
            settings.deployment, processes, lambda said: status.update(one_line(said)), fresh=True
        ) as plan,
    ):
        status.stop()
        url = next(spec.url for spec in plan if spec.name == "orchestrator")
        trainer = processes.start("trainer", trainer_command(settings, url), level=TRAINER_LEVEL)
        ended = processes.wait_for_first_exit()
        if ended is not trainer or trainer.process.returncode < 0:
            raise LaunchError(describe_exit(ended))
    return trainer.process.returncode


def demo_policy() -> Path:
    """Directory of the example's policy. Raises `LaunchError` outside a source checkout."""
    if not POLICY.is_dir():
        raise LaunchError(
            "the demo and its policy come with a source checkout, not with the package",
            fix="clone the repository, or name a model to serve with `rollyard up --model`",
        )
    return POLICY


def trainer_command(settings: DemoSettings, url: str) -> list[str]:
    return [
        str(settings.deployment.engine.python),
        str(EXAMPLE / "train.py"),
        *("--url", url),
        *("--policy", str(settings.deployment.model)),
        *("--output", str(settings.output)),
        *("--work-dir", str(settings.deployment.directory / "checkpoints")),
        *("--started-at", str(settings.started_at)),
        *settings.trainer_options,
    ]
