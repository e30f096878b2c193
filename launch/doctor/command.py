"""The `rollyard doctor` command. Exit code 1 when a check has failed."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from launch.doctor.check import CheckVerdict
from launch.doctor.examine import examine
from launch.output import Json, Listing, TokenFile, Url, connect, show
from launch.vllm_environment import DEFAULT_LLM_PYTHON
from rollyard.api import DEFAULT_URL
from rollyard.tokens import tokens_for

COLOURS = {CheckVerdict.OK: "green", CheckVerdict.FAILED: "red", CheckVerdict.SKIPPED: "dim"}


def doctor(
    url: Url = DEFAULT_URL,
    directory: Annotated[Path, typer.Option(help="Directory of logs and the queues' data.")] = Path(
        "rollyard-data"
    ),
    llm_python: Annotated[
        Path, typer.Option(help="Python interpreter that has vLLM.")
    ] = DEFAULT_LLM_PYTHON,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Check this machine, the queues and every server, and say what to do about each problem."""
    token = tokens_for(url, token_file).widest
    checks = examine(connect(url, token_file), url, token, directory.resolve(), llm_python)
    shown = Listing("check", "verdict", "finding", "what to do")
    for check in checks:
        verdict = Text(check.verdict, style=COLOURS[check.verdict])
        shown.add(check.name, verdict, check.finding, check.fix)
    show({"checks": checks}, [shown], json=json)
    if any(check.verdict is CheckVerdict.FAILED for check in checks):
        raise typer.Exit(1)
