"""All commands of `rollyard`, and the handling of their errors."""

from importlib.metadata import version
from typing import Annotated

import typer

from launch.deployment_commands import add_deployment_commands
from launch.doctor.command import doctor
from launch.environments.command import commands as environment_commands
from launch.job_commands import JOB_COMMANDS
from launch.output import asks
from launch.plan_command import plan_command
from launch.rewards import rewards_command
from launch.run_commands import RUN_COMMANDS
from launch.server_commands import SERVER_COMMANDS
from launch.show import show_command
from launch.simulate import simulate_command
from rollyard.errors import RollyardError

app = typer.Typer(
    help="Rollyard: a rollout service for agentic reinforcement learning.",
    epilog="Exit codes: 0 done, 1 failed or refused (stderr says why in one sentence), "
    "2 bad usage, 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rollyard {version('rollyard')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    pass


add_deployment_commands(app)
for command in (*RUN_COMMANDS, *JOB_COMMANDS, *SERVER_COMMANDS):
    app.command()(asks(command))
app.command("rewards")(rewards_command)
app.command("show")(asks(show_command))
app.command("doctor")(doctor)
app.command("simulate")(simulate_command)
app.command("plan")(plan_command)
app.add_typer(environment_commands, name="env")


def run() -> str:
    """Carry out the command line. Returns a sentence on what failed, empty if nothing did."""
    try:
        app(prog_name="rollyard")
    except RollyardError as error:
        return str(error)
    return ""
