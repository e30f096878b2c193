"""`rollyard demo`: start a yard, train the example's tiny policy on it, stop the yard."""

from pathlib import Path

import msgspec
from rich.console import Console

from launch.plan import YardSettings
from launch.processes import Processes, obituary
from launch.yard import running_yard
from rollyard.errors import LaunchError

CHECKOUT = Path(__file__).parent.parent
EXAMPLE = CHECKOUT / "examples" / "arithmetic"
POLICY = EXAMPLE / "policy"
TRAINER = "trainer"


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    yard: YardSettings
    output: Path
    """Where report.html and report.json go."""
    started_at: float
    """Unix seconds; total_seconds counts from here."""
    trainer_options: tuple[str, ...] = ()


def demo(settings: DemoSettings, console: Console) -> int:
    """The trainer's exit code. Raises `LaunchError` when a part of the yard dies meanwhile.

    Stdout is the trainer's: its last line is the summary as JSON.
    """
    if not EXAMPLE.is_dir():
        raise LaunchError(
            f"there is no example at {EXAMPLE}", fix="run the demo from a source checkout"
        )
    processes = Processes()
    with (
        console.status("starting") as status,
        running_yard(
            settings.yard, processes, lambda name: status.update(f"waiting for {name}"), fresh=True
        ) as plan,
    ):
        status.stop()
        url = next(spec.url for spec in plan if spec.name == "orchestrator")
        trainer = processes.start(TRAINER, trainer_command(settings, url))
        ended = processes.wait_for_first_exit()
        assert ended is not None  # without a deadline the wait ends with an exit
        if ended.name != TRAINER:
            raise LaunchError(obituary(ended))
        code = trainer.process.returncode
    if code < 0:
        raise LaunchError(obituary(trainer))
    return code


def trainer_command(settings: DemoSettings, url: str) -> list[str]:
    return [
        str(settings.yard.llm_python),
        str(EXAMPLE / "train.py"),
        *("--url", url),
        *("--policy", str(settings.yard.model)),
        *("--output", str(settings.output)),
        *("--work-dir", str(settings.yard.directory / "checkpoints")),
        *("--started-at", str(settings.started_at)),
        *settings.trainer_options,
    ]
