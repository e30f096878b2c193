"""`rollyard up | down | demo | status`: start, stop and show a deployment on this machine."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from launch.demo import POLICY, demo
from launch.detached import down, up_detached
from launch.engine import Engine
from launch.engine_options import with_engine
from launch.free_ports import free_ports
from launch.llm_processes import LOOPBACK
from launch.output import (
    DEFAULT_DIRECTORY,
    All,
    Directory,
    Json,
    TokenFile,
    Url,
    connect,
    not_empty,
    show,
)
from launch.parts import parts_behind, what_is_amiss
from launch.plan import DeploymentSettings
from launch.ports import default_ports
from launch.service_options import FirstPort, Slots, with_services
from launch.services import ServiceSettings
from launch.status import WholeStatus, listings
from launch.tls_options import TLSChoice, with_tls
from launch.up import up
from rollyard.api import DEFAULT_PORT, DEFAULT_URL
from rollyard.errors import LaunchError, Unavailable

console = Console(stderr=True)

Prorl = Annotated[
    bool,
    typer.Option(
        "--prorl",
        help="Open a ProRL door on each agent server, on the ports after the orchestrator's "
        "(docs/doors.md).",
    ),
]
ProrlOpen = Annotated[
    bool, typer.Option("--prorl-open", help="The same, and the doors require no token.")
]
NemoGym = Annotated[
    bool,
    typer.Option(
        "--nemo-gym", help="Open a NeMo-Gym door on each agent server, in the place of ProRL's."
    ),
]
NemoGymOpen = Annotated[
    bool, typer.Option("--nemo-gym-open", help="The same, and the doors require no token.")
]

Host = Annotated[
    str,
    typer.Option(
        help="Address or name of this machine on which services listen, and in their URLs.",
        callback=not_empty,
    ),
]


def add_deployment_commands(app: typer.Typer) -> None:
    app.command("up")(up_command)
    app.command("down")(down_command)
    app.command("demo")(demo_command)
    app.command("status")(status_command)


@with_tls
@with_services
def up_command(
    *,
    agent_servers: Annotated[int, typer.Option(help="Number of agent servers.", min=1)] = 2,
    llm_servers: Annotated[int, typer.Option(help="Number of LLM servers.", min=1)] = 1,
    services: ServiceSettings,
    port: FirstPort = DEFAULT_PORT,
    directory: Directory = DEFAULT_DIRECTORY,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once all is ready; `rollyard down` stops it.")
    ] = False,
    llm_proxy: Annotated[
        bool, typer.Option("--llm-proxy", help="Put a proxy before the LLM servers.")
    ] = False,
    prorl: Prorl = False,
    prorl_open: ProrlOpen = False,
    nemo_gym: NemoGym = False,
    nemo_gym_open: NemoGymOpen = False,
    host: Host = LOOPBACK,
    tls: TLSChoice,
) -> None:
    """Start everything on this machine and leave it running until Ctrl-C."""
    door, other_door = prorl or prorl_open, nemo_gym or nemo_gym_open
    if door and other_door:
        raise LaunchError("an agent server has one door", fix="give --prorl or --nemo-gym")
    settings = DeploymentSettings(
        **{**services.fields(), "tls": tls.of(directory.resolve())},
        host=host,
        directory=directory.resolve(),
        ports=default_ports(
            port,
            agent_servers,
            llm_servers,
            doors=agent_servers if door or other_door else 0,
            llm_proxy=llm_proxy,
        ),
        prorl_open=prorl_open,
        nemo_gym=other_door,
        nemo_gym_open=nemo_gym_open,
    )
    (up_detached if detach else up)(settings, console)


def down_command(directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop what `rollyard up` started in a directory, detached or not."""
    pid = down(directory.resolve())
    show(None, [f"the rollyard in {directory.resolve()} (pid {pid}) is stopped"], json=False)


@with_engine
def demo_command(
    *,
    output: Annotated[Path, typer.Option(help="Directory for the report.")] = Path("demo"),
    engine: Engine,
    slots: Slots = 16,
    max_steps: Annotated[int, typer.Option(help="Training steps at most.", min=1)] = 60,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Show the training in TensorBoard, too.")
    ] = False,
    started_at: Annotated[
        float, typer.Option(help="Unix seconds from which the total time is counted.")
    ] = 0.0,
) -> None:
    """Train a tiny tool-using policy with DAPO until it has learned; the last line is JSON."""
    deployment = DeploymentSettings(
        model=POLICY,
        engine=engine,
        directory=(output / "deployment").resolve(),
        ports=free_ports(agent_servers=2, llm_servers=1),
        slots=slots,
    )
    trainer_options = (
        *("--output", str(output.resolve())),
        *("--started-at", str(started_at or time.time())),
        *("--max-steps", str(max_steps)),
        *(("--tensorboard", str((output / "tensorboard").resolve())) if tensorboard else ()),
    )
    raise typer.Exit(demo(deployment, trainer_options, console))


def status_command(
    closed: All = False, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None
) -> None:
    """Show the servers and runs that an orchestrator knows, and what was started again."""
    parts = parts_behind(url, token_file)
    try:
        status = connect(url, token_file).status()
    except Unavailable as error:
        raise Unavailable(error.message, fix=what_is_amiss(parts) or error.fix) from error
    if not closed:
        runs = tuple(run for run in status.runs if not run.closed)
        status = msgspec.structs.replace(status, runs=runs)
    show(WholeStatus.of(status, parts), listings(status, parts), json=json)
