"""`rollyard up | down | demo | status`: everything on this machine, started, stopped and seen."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from launch.demo import DemoSettings, demo, demo_policy
from launch.detached import down, up_detached
from launch.engine import LLM_START_SECONDS, Engine, LLMKind, find_model, listed
from launch.output import DEFAULT_PORT, DEFAULT_URL, All, Json, TokenFile, Url, connect, show
from launch.plan import YardSettings
from launch.ports import default_ports, free_ports
from launch.status import listings
from launch.up import up
from launch.vllm_environment import DEFAULT_LLM_PYTHON
from serving.log_format import LogFormat

console = Console(stderr=True)

Model = Annotated[
    str | None,
    typer.Option(
        help="The model to serve: a directory, or the name on the Hugging Face hub of one that was "
        "downloaded.  [default: the demo's policy]"
    ),
]
LLM = Annotated[LLMKind, typer.Option(help="Real vLLM, or the scripted stand-in.")]
LLMPython = Annotated[Path, typer.Option(help="Python interpreter that has vLLM.")]
DType = Annotated[
    str | None,
    typer.Option(help="Of the model's numbers.  [default: float32; with --gpus the model's own]"),
]
ContextLength = Annotated[
    int | None,
    typer.Option(
        help="Tokens of prompt and responses together.  [default: the model's, if it fits]", min=2
    ),
]
Gpus = Annotated[
    str,
    typer.Option(help="CUDA devices, with commas; the LLM servers share them evenly."),
]
StartSeconds = Annotated[
    float, typer.Option(help="For an LLM server to be ready before `rollyard` gives up.", min=1)
]
Further = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- VLLM OPTIONS]", help="Options of vLLM's own.", show_default=False),
]
Slots = Annotated[int, typer.Option(help="Jobs at once on each agent server.", min=1)]
StopTokens = Annotated[
    list[str] | None,
    typer.Option(
        help="The text of a token that ends a response, beside those that the model's files name; "
        "repeat.",
        show_default=False,
    ),
]
Directory = Annotated[Path, typer.Option(help="Logs and the queues' data.")]

DEFAULT_DIRECTORY = Path("rollyard-data")


def add_yard_commands(app: typer.Typer) -> None:
    app.command("up")(up_command)
    app.command("down")(down_command)
    app.command("demo")(demo_command)
    app.command("status")(status_command)


def up_command(
    model: Model = None,
    agent_servers: Annotated[int, typer.Option(help="How many.", min=1)] = 2,
    slots: Slots = 16,
    llm_servers: Annotated[int, typer.Option(help="How many.", min=1)] = 1,
    llm: LLM = LLMKind.VLLM,
    llm_python: LLMPython = DEFAULT_LLM_PYTHON,
    dtype: DType = None,
    max_model_len: ContextLength = None,
    gpus: Gpus = "",
    start_seconds: StartSeconds = LLM_START_SECONDS,
    port: Annotated[
        int, typer.Option(help="The orchestrator's; the other processes take the next ones.")
    ] = DEFAULT_PORT,
    directory: Directory = DEFAULT_DIRECTORY,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all is ready; `rollyard down` stops it.")
    ] = False,
    stop_token: StopTokens = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="How a line of the services' logs is written.")
    ] = LogFormat.TEXT,
    further: Further = None,
) -> None:
    """Start everything on this machine and leave it running until Ctrl-C."""
    settings = YardSettings(
        model=demo_policy() if model is None else find_model(model),
        engine=Engine(
            kind=llm,
            python=llm_python,
            dtype=dtype,
            max_model_len=max_model_len,
            gpus=listed(gpus),
            start_seconds=start_seconds,
            further=tuple(further or ()),
        ),
        directory=directory.resolve(),
        ports=default_ports(port, agent_servers, llm_servers),
        slots=slots,
        log_format=log_format,
        stop_tokens=tuple(stop_token or ()),
    )
    (up_detached if detach else up)(settings, console)


def down_command(directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop what `rollyard up` started in a directory, detached or not."""
    pid = down(directory.resolve())
    show(None, f"the rollyard in {directory.resolve()} (pid {pid}) is stopped", json=False)


def demo_command(
    output: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("demo"),
    llm: LLM = LLMKind.VLLM,
    llm_python: LLMPython = DEFAULT_LLM_PYTHON,
    dtype: DType = None,
    max_model_len: ContextLength = None,
    gpus: Gpus = "",
    start_seconds: StartSeconds = LLM_START_SECONDS,
    slots: Slots = 16,
    max_steps: Annotated[int, typer.Option(help="Give up after so many.", min=1)] = 60,
    started_at: Annotated[float, typer.Option(help="Unix seconds to count from.")] = 0.0,
    further: Further = None,
) -> None:
    """Train a tiny tool-using policy with DAPO until it has learned; the last line is JSON."""
    yard = YardSettings(
        model=demo_policy(),
        engine=Engine(
            kind=llm,
            python=llm_python,
            dtype=dtype,
            max_model_len=max_model_len,
            gpus=listed(gpus),
            start_seconds=start_seconds,
            further=tuple(further or ()),
        ),
        directory=(output / "yard").resolve(),
        ports=free_ports(agent_servers=2, llm_servers=1),
        slots=slots,
    )
    settings = DemoSettings(
        yard=yard,
        output=output.resolve(),
        started_at=started_at or time.time(),
        trainer_options=("--max-steps", str(max_steps)),
    )
    raise typer.Exit(demo(settings, console))


def status_command(
    closed: All = False,
    url: Url = DEFAULT_URL,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Show the servers and runs that an orchestrator knows."""
    status = connect(url, token_file).status()
    if not closed:
        runs = tuple(run for run in status.runs if not run.closed)
        status = msgspec.structs.replace(status, runs=runs)
    show(status, *listings(status), json=json)
