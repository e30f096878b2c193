"""`rollyard llm`: the LLM servers of this machine, kept running until Ctrl-C or SIGTERM.

- Queues and agents are those of the deployment whose orchestrator it names.
- People read the table on stderr; a script reads one line of JSON, name to URL, on stdout.
"""

import socket
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.engine import Engine
from launch.engine_options import with_engine
from launch.gpus import gpus_of_machine
from launch.llm_node import llm_places, run_llm_node
from launch.llm_processes import LOOPBACK, LLMNodeSettings
from launch.output import TokenFile, Url
from launch.plan_command import TensorParallel
from launch.service_options import LLMOnCpus, LogFormatOption, Model, served_model
from launch.tls_options import TLSChoice, with_tls
from rollyard.api import DEFAULT_URL
from rollyard.messages import check_name
from rollyard.tokens import token_file_for, tokens_for
from serving.bind import Bind
from serving.log_format import LogFormat

DEFAULT_LLM_DIRECTORY = Path("rollyard-llm")
DEFAULT_LLM_PORT = 8100

Host = Annotated[
    str,
    typer.Option(help="Address of the proxy and of the control; others than loopback take tokens."),
]
LLMPort = Annotated[
    int, typer.Option("--port", help="Port of the proxy; the others take the next ones.")
]
LLMNodeId = Annotated[
    str,
    typer.Option(
        "--name",
        help="What the orchestrator calls this machine.  [default: its host name]",
        show_default=False,
    ),
]
LLMDirectory = Annotated[Path, typer.Option("--directory", help="Directory of logs.")]
LLMsOnCpu = Annotated[
    int | None,
    typer.Option("--llm-servers", help="Number of LLM servers without GPUs.  [default: 1]", min=1),
]


@with_tls
@with_engine
def llm_command(
    *,
    model: Model = None,
    engine: Engine,
    tensor_parallel: TensorParallel = 1,
    llm_servers: LLMsOnCpu = None,
    llm_on_cpus: LLMOnCpus = False,
    host: Host = LOOPBACK,
    port: LLMPort = DEFAULT_LLM_PORT,
    name: LLMNodeId = "",
    directory: LLMDirectory = DEFAULT_LLM_DIRECTORY,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    tls: TLSChoice,
) -> None:
    """Run the LLM servers of this machine, one for every --tensor-parallel of its GPUs, behind a
    proxy that takes tokens, and announce them to an orchestrator."""
    node_id = name or socket.gethostname()
    check_name(node_id, "--name")
    # Refused here rather than by the first process.
    Bind(host=host, port=port, protected=bool(tokens_for(url, token_file)))
    gpus = () if llm_on_cpus else engine.gpus or gpus_of_machine()
    settings = LLMNodeSettings(
        node_id=node_id,
        model=served_model(model),
        engine=engine,
        servers=llm_places(engine, gpus, tensor_parallel, first_port=port + 2, on_cpu=llm_servers),
        host=host,
        proxy_port=port,
        control_port=port + 1,
        orchestrator_url=url,
        token_file=token_file_for(url, token_file),
        log_format=log_format,
        tls=tls.of(directory.resolve()),
    )
    run_llm_node(settings, directory.resolve(), Console(stderr=True))
