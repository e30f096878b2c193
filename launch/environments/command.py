"""`rollyard env list | new | validate | try`. `validate` exits with 1 when a row has a problem."""

import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from launch.environments import episodes, rows
from launch.environments.catalogue import catalogue
from launch.environments.scaffold import scaffold
from launch.environments.validate import RowVerdict, ValidationSettings, verdicts
from launch.environments.workbench import Workbench
from launch.output import Json, Listing, not_empty, printable, show
from launch.show import graded
from rollyard.messages import ChatMessage, Limits, Sampling
from serving import logs
from serving.log_format import LogFormat

Name = Annotated[str, typer.Argument(help="Environment, by its data_source.", callback=not_empty)]
Data = Annotated[Path, typer.Argument(help="Dataset: .jsonl, .parquet, or a directory.")]
Source = Annotated[
    str,
    typer.Option("--from", metavar="MODULE:CLASS", help="An environment that is not installed."),
]
RepositoriesOption = Annotated[
    Path | None, typer.Option("--repositories", help="Directory of the repositories of swe.")
]
ImagesOption = Annotated[
    Path | None, typer.Option("--images", help="Directory of the images that rows name.")
]
Seconds = Annotated[float, typer.Option(help="Time for one episode.", min=0.1)]

commands = typer.Typer(help="Make, prove and try environments.", no_args_is_help=True)


@commands.callback()
def keep_stdout_for_answers() -> None:
    logs.configure("env", LogFormat.TEXT)


@commands.command("list")
def list_command(json: Json = False) -> None:
    """List the environments that are installed, and what they lack on this machine."""
    found = catalogue()
    shown = Listing("environment", "from", "about", "lacking here")
    for each in found:
        shown.add(each.name, each.source, each.about, "; ".join(each.lacking))
    show({"environments": found}, [shown], json=json)


@commands.command("new")
def new_command(
    name: Name,
    directory: Annotated[Path, typer.Option(help="Directory to write it in.")] = Path(),
    json: Json = False,
) -> None:
    """Write an installable package with an environment, its test, and rows."""
    files = [str(file) for file in scaffold(name, directory)]
    there = directory / name
    shown = [
        *files,
        f"prove it: cd {there} && rollyard env validate {name} rows.jsonl --from "
        f"{name}:{''.join(word.capitalize() for word in name.split('_'))}",
    ]
    show({"files": files}, shown, json=json)


@commands.command("validate")
def validate_command(
    name: Name,
    data: Data,
    source: Source = "",
    repositories: RepositoriesOption = None,
    images: ImagesOption = None,
    limit: Annotated[int | None, typer.Option(help="Only the first rows.", min=1)] = None,
    solved_at: Annotated[float, typer.Option(help="Least reward of a solution.")] = 1.0,
    untouched_below: Annotated[
        float, typer.Option(help="Reward that doing nothing must not reach.")
    ] = 1.0,
    row_seconds: Seconds = 600.0,
    at_once: Annotated[
        int | None, typer.Option(help="Rows at once.  [default: a row for each core]", min=1)
    ] = None,
    json: Json = False,
) -> None:
    """Prove a dataset: the solution of every row is rewarded, and doing nothing is not."""
    settings = ValidationSettings(
        solved_at=solved_at, untouched_below=untouched_below, row_seconds=row_seconds
    )
    if at_once is not None:
        settings = msgspec.structs.replace(settings, at_once=at_once)
    total = sum(1 for _ in islice(rows.prompts(name, data), limit))
    found: list[RowVerdict] = []
    with (
        Workbench(name, source, repositories=repositories, images=images) as bench,
        _progress() as progress,
    ):
        task = progress.add_task(f"validating {name}", total=total, failed=0)
        for each in verdicts(bench, islice(rows.prompts(name, data), limit), settings):
            found.append(each)
            failed = sum(bool(verdict.problem) for verdict in found)
            progress.update(task, advance=1, failed=failed)
    _show_verdicts(found, json=json)
    if any(each.problem for each in found):
        raise typer.Exit(1)


@commands.command("try")
def try_command(
    name: Name,
    data: Data,
    row: Annotated[int, typer.Option(help="Number of the row, from 0.", min=0)] = 0,
    source: Source = "",
    repositories: RepositoriesOption = None,
    images: ImagesOption = None,
    script: Annotated[
        Path | None, typer.Option(help="Responses to give, separated by lines of ---.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Directory of the served model that is to play.")
    ] = None,
    llm_server: Annotated[
        list[str] | None, typer.Option(help="URL of a server of the model; repeat.")
    ] = None,
    max_turns: Annotated[int, typer.Option(help="Turns at most.", min=1)] = 30,
    temperature: Annotated[float, typer.Option(help="Temperature of the model.", min=0)] = 1.0,
    seconds: Seconds = 600.0,
    json: Json = False,
) -> None:
    """Play one row: with the model, with a script, or with what you type."""
    prompt = rows.prompt(name, data, row)
    limits = Limits(max_turns=max_turns, job_seconds=seconds)
    told = Console(stderr=json)
    with Workbench(name, source, repositories=repositories, images=images) as bench:
        if model is not None:
            player = episodes.Model(
                directory=model,
                servers=tuple(llm_server or ()),
                sampling=Sampling(temperature=temperature),
            )
            played = episodes.play_with(bench, prompt, player, limits)
            for message in played.messages:
                _tell(told, message)
        else:
            responses = _typed(told) if script is None else iter(episodes.script(script))
            played = episodes.play(
                bench, prompt, lambda: next(responses, None), lambda each: _tell(told, each), limits
            )
    show(played, [_told(played)], json=json)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} with a problem"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


def _show_verdicts(found: list[RowVerdict], *, json: bool) -> None:
    bad = [each for each in found if each.problem]
    shown = Listing("row", "problem")
    for each in bad:
        shown.add(each.row, each.problem)
    seconds = sum(each.seconds for each in found)
    said = f"{len(found)} rows, {len(bad)} with a problem; {seconds:.1f} s of episodes"
    message = {"rows": len(found), "problems": len(bad), "verdicts": bad}
    show(message, [*([shown] if bad else []), said], json=json)


def _typed(console: Console) -> Iterator[str]:
    """The responses that a person types, each of which an empty line or the end of input ends."""
    ask = partial(console.print, "your response, and an empty line:", style="bold")
    ask()
    lines: list[str] = []
    for line in sys.stdin:
        if line.strip() or not lines:
            lines.append(line.rstrip("\n"))
            continue
        yield "\n".join(lines)
        lines.clear()
        ask()
    if lines:
        yield "\n".join(lines)


def _tell(console: Console, message: ChatMessage) -> None:
    text = Text()
    speaker = f"{message.role} {message.name}".strip()
    text.append(f"{speaker}:\n", style="bold")
    text.append(printable(message.content), style="green" if message.role == "assistant" else "")
    console.print(text, soft_wrap=True)


def _told(played: episodes.Played) -> Text:
    cut = " (cut off before its end)" if played.truncated else ""
    return Text(graded(played.grade) + cut, style="bold")
