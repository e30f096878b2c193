"""`rollyard up | demo | status`: start everything on this machine, and see it at a glance."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.demo import CHECKOUT, POLICY, DemoSettings, demo
from launch.output import DEFAULT_PORT, DEFAULT_URL, Json, TokenFile, Url, connect, show
from launch.plan import LLMKind, YardSettings
from launch.ports import default_ports, free_ports
from launch.status import listings
from launch.up import up

console = Console(stderr=True)

Model = Annotated[Path, typer.Option(help="Directory of the model to serve.")]
LLM = Annotated[LLMKind, typer.Option(help="Real vLLM, or the scripted stand-in.")]
LLMPython = Annotated[Path, typer.Option(help="Python interpreter that has vLLM.")]
Slots = Annotated[int, typer.Option(help="Jobs at once on each agent server.", min=1)]

DEFAULT_LLM_PYTHON = CHECKOUT / ".venv-llm" / "bin" / "python"


def add_yard_commands(app: typer.Typer) -> None:
    app.command("up")(up_command)
    app.command("demo")(demo_command)
    app.command("status")(status_command)


def up_command(
    model: Model = POLICY,
    agent_servers: Annotated[int, typer.Option(help="How many.", min=1)] = 2,
    slots: Slots = 16,
    llm_servers: Annotated[int, typer.Option(help="How many.", min=1)] = 1,
    llm: LLM = LLMKind.VLLM,
    llm_python: LLMPython = DEFAULT_LLM_PYTHON,
    port: Annotated[
        int, typer.Option(help="The orchestrator's; the other processes take the next ones.")
    ] = DEFAULT_PORT,
    directory: Annotated[Path, typer.Option(help="Logs and the queues' data.")] = Path(
        "rollyard-data"
    ),
) -> None:
    """Start everything on this machine and leave it running until Ctrl-C."""
    settings = YardSettings(
        model=model.resolve(),
        directory=directory.resolve(),
        ports=default_ports(port, agent_servers, llm_servers),
        slots=slots,
        llm=llm,
        llm_python=llm_python,
        llm_options=_llm_options(llm),
    )
    up(settings, console)


def demo_command(
    output: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("demo"),
    llm: LLM = LLMKind.VLLM,
    llm_python: LLMPython = DEFAULT_LLM_PYTHON,
    slots: Slots = 16,
    max_steps: Annotated[int, typer.Option(help="Give up after so many.", min=1)] = 60,
    started_at: Annotated[float, typer.Option(help="Unix seconds to count from.")] = 0.0,
) -> None:
    """Train a tiny tool-using policy with DAPO until it has learned; the last line is JSON."""
    yard = YardSettings(
        model=POLICY,
        directory=(output / "yard").resolve(),
        ports=free_ports(agent_servers=2, llm_servers=1),
        slots=slots,
        llm=llm,
        llm_python=llm_python,
        llm_options=_llm_options(llm),
    )
    settings = DemoSettings(
        yard=yard,
        output=output.resolve(),
        started_at=started_at or time.time(),
        trainer_options=("--max-steps", str(max_steps)),
    )
    raise typer.Exit(demo(settings, console))


def status_command(
    url: Url = DEFAULT_URL,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Show the servers and runs that an orchestrator knows."""
    status = connect(url, token_file).status()
    show(status, *listings(status), json=json)


def _llm_options(llm: LLMKind) -> tuple[str, ...]:
    # A policy small enough for a CPU is compared with its trainer to the last digit.
    return ("--dtype", "float32") if llm is LLMKind.VLLM else ()
