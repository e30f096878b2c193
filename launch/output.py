"""What the commands share: where the orchestrator is, and one form for people, one for scripts."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rollyard import Client, codec
from rollyard.tokens import TOKEN_FILE_VARIABLE

DEFAULT_PORT = 8005
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"

Url = Annotated[str, typer.Option(help="The orchestrator's.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="Tokens to show the orchestrator; those of a `rollyard up` here are found without.",
        envvar=TOKEN_FILE_VARIABLE,
    ),
]


def connect(url: str, token_file: Path | None) -> Client:
    return Client(url, token_file=token_file, patience_seconds=2)


def show(message: object, shown: object, *, json: bool) -> None:
    """`message` as one line of JSON, or `shown` for people."""
    if json:
        sys.stdout.write(codec.encode_json(message).decode() + "\n")
    elif isinstance(shown, str):
        Console().print(shown, markup=False, highlight=False, soft_wrap=True)
    else:
        Console().print(shown)


def table(*columns: str) -> Table:
    made = Table()
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
