"""Command-line options of a deployment's services, for every command that starts some."""

from pathlib import Path
from typing import Annotated

import typer

from launch.demo import DEMO_TOOL_CALLS, POLICY
from launch.engine import Engine, find_model
from launch.engine_options import built, with_engine
from launch.services import RETENTION_HOURS, ServiceSettings
from serving.log_format import LogFormat

Model = Annotated[
    str | None,
    typer.Option(
        help="The model to serve: a directory, or the name on the Hugging Face hub of one that was "
        "downloaded.  [default: the demo's policy]"
    ),
]
Slots = Annotated[int, typer.Option(help="Concurrent jobs on each agent server.", min=1)]
StopTokens = Annotated[
    list[str] | None,
    typer.Option(
        help="Text of a token that ends a response, in addition to those that the model's files "
        "name; may be repeated.",
        show_default=False,
    ),
]
ToolCalls = Annotated[
    str,
    typer.Option(
        help="Format in which the model writes tool calls, by name (docs/tools.md).  [default: the "
        "one that its chat template mentions]",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        help="Name of what this machine has and environments or rows may need, such as a GPU; may "
        "be repeated.",
        show_default=False,
    ),
]
Repositories = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the repositories that rows of swe name (docs/swe.md).",
        show_default=False,
    ),
]
Images = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the images of sandboxes, which rows may name (docs/sandboxes.md).",
        show_default=False,
    ),
]
RewardUrl = Annotated[
    str,
    typer.Option(
        help="Service that grades answers, such as a `rollyard rewards` (docs/rewards.md).  "
        "[default: agent servers grade]",
        show_default=False,
    ),
]
RewardTokenFile = Annotated[
    Path | None, typer.Option(help="The token file of that service.", show_default=False)
]
FirstPort = Annotated[
    int,
    typer.Option(
        "--port", help="Port of the orchestrator; other processes take the next ones.", min=1
    ),
]
LLMOnCpus = Annotated[
    bool, typer.Option("--llm-on-cpus", help="Have LLM servers compute on CPUs, not on GPUs.")
]
Retention = Annotated[
    float,
    typer.Option(
        "--retention-hours",
        help="Hours for which closed runs, with their dead jobs, and the ids of prompts that are "
        "gone stay in Redis.",
        min=1,
    ),
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Format of the services' log lines.")
]


def _services(
    *,
    model: Model = None,
    slots: Slots = 16,
    engine: Engine,
    stop_token: StopTokens = None,
    tool_calls: ToolCalls = "",
    tag: Tags = None,
    repositories: Repositories = None,
    images: Images = None,
    reward_url: RewardUrl = "",
    reward_token_file: RewardTokenFile = None,
    retention_hours: Retention = RETENTION_HOURS,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> ServiceSettings:
    return ServiceSettings(
        model=served_model(model),
        engine=engine,
        slots=slots,
        stop_tokens=tuple(stop_token or ()),
        tool_calls=tool_calls or (DEMO_TOOL_CALLS if model is None else ""),
        tags=tuple(tag or ()),
        repositories=None if repositories is None else repositories.resolve(),
        images=None if images is None else images.resolve(),
        reward_url=reward_url,
        reward_token_file=None if reward_token_file is None else reward_token_file.resolve(),
        retention_hours=retention_hours,
        log_format=log_format,
    )


with_services = built("services", with_engine(_services))
"""The command with the options of services in the place of its parameter `services`."""
with_services_alone = built("services", built("engine", lambda: Engine())(_services))
"""The same without the options of LLM servers, for deployments that have none."""


def served_model(name: str | None) -> Path:
    """The directory of the model that was named, or of the demo's policy. Raises `LaunchError`."""
    return POLICY if name is None else find_model(name)
