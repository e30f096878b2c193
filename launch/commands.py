"""All commands of `rollyard`, and the handling of their errors."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from launch.config import (
    CONFIG,
    PREFIX,
    ConfigFile,
    commands_of,
    config_first,
    find_config,
    read_config,
)
from launch.config_command import config_commands
from launch.deployment_commands import add_deployment_commands
from launch.doctor.command import doctor
from launch.environments.command import commands as environment_commands
from launch.job_commands import JOB_COMMANDS
from launch.kubernetes.commands import commands as kubernetes_commands
from launch.llm_command import llm_command
from launch.node_command import node_command
from launch.output import asks
from launch.plan_command import plan_command
from launch.ray.command import ray_command
from launch.restart import restart_command
from launch.rewards import rewards_command
from launch.run_commands import RUN_COMMANDS
from launch.server_commands import SERVER_COMMANDS
from launch.show import show_command
from launch.simulate import simulate_command
from launch.slurm.commands import commands as slurm_commands
from launch.tls_command import tls_commands
from launch.token_command import token_command
from rollyard.errors import RollyardError

app = typer.Typer(
    context_settings={"auto_envvar_prefix": PREFIX},
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
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help=f"File of settings (docs/command-line.md).  [default: {CONFIG}, if there is one]",
            show_default=False,
        ),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    path, commands = find_config(config), commands_of(app)
    context.obj = ConfigFile(path, commands)
    if path is not None:
        context.default_map = read_config(path, commands)


add_deployment_commands(app)
for command in (*RUN_COMMANDS, *JOB_COMMANDS, *SERVER_COMMANDS):
    app.command()(asks(command))
app.command("rewards")(rewards_command)
app.command("show")(asks(show_command))
app.command("doctor")(doctor)
app.command("simulate")(simulate_command)
app.command("plan")(plan_command)
app.command("llm")(llm_command)
app.command("restart")(restart_command)
app.command("node")(node_command)
app.command("token")(token_command)
app.command("ray")(ray_command)
app.add_typer(environment_commands, name="env")
app.add_typer(config_commands, name="config")
app.add_typer(tls_commands, name="tls")
app.add_typer(slurm_commands, name="slurm")
app.add_typer(kubernetes_commands, name="kubernetes")


def run() -> str:
    """Carry out the command line. Returns a sentence on what failed, empty if nothing did."""
    try:
        app(config_first(sys.argv[1:]), prog_name="rollyard")
    except RollyardError as error:
        return str(error)
    return ""
