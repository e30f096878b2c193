"""The `rollyard` command. A failure is one sentence on stderr and exit code 1; bad usage is 2."""

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from launch.demo import CHECKOUT, POLICY, DemoSettings, demo, show_cursor
from launch.doctor.command import doctor
from launch.job_commands import add_job_commands
from launch.output import DEFAULT_PORT, DEFAULT_URL, Json, TokenFile, Url, connect, show
from launch.plan import LLMKind, YardSettings
from launch.ports import default_ports, free_ports
from launch.run_commands import add_run_commands
from launch.server_commands import add_server_commands
from launch.simulate import simulate_command
from launch.status import tables
from launch.up import up
from rollyard.errors import RollyardError

app = typer.Typer(
    help="Rollyard: a rollout service for agentic reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(stderr=True)

Model = Annotated[Path, typer.Option(help="Directory of the model to serve.")]
LLM = Annotated[LLMKind, typer.Option(help="Real vLLM, or the scripted stand-in.")]
LLMPython = Annotated[Path, typer.Option(help="Python interpreter that has vLLM.")]
Slots = Annotated[int, typer.Option(help="Jobs at once on each agent server.", min=1)]

DEFAULT_LLM_PYTHON = CHECKOUT / ".venv-llm" / "bin" / "python"


@app.command("up")
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


@app.command("demo")
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


@app.command("status")
def status_command(
    url: Url = DEFAULT_URL,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Show the servers and runs that an orchestrator knows."""
    status = connect(url, token_file).status()
    show(status, tables(status), json=json)


add_run_commands(app)
add_job_commands(app)
add_server_commands(app)
app.command("doctor")(doctor)
app.command("simulate")(simulate_command)


def _llm_options(llm: LLMKind) -> tuple[str, ...]:
    # A policy small enough for a CPU is compared with its trainer to the last digit.
    return ("--dtype", "float32") if llm is LLMKind.VLLM else ()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        app()
    except RollyardError as error:
        show_cursor()
        say(f"rollyard: {error}")
        sys.exit(1)
    except Stopped:
        show_cursor()
        say("rollyard: stopped")
        sys.exit(130)


def say(sentence: str) -> None:
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


class Stopped(BaseException):
    """Ctrl-C or SIGTERM. No error: nothing but `main` handles it."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped


if __name__ == "__main__":
    main()
