"""Options and output that the commands share.

- A terminal gets tables; a pipe gets lines of tab-separated columns, none of them folded.
- JSON is one object on one line; a list in it is named after its elements.
"""

import functools
import inspect
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollyard import codec
from rollyard.api import DEFAULT_URL, OrchestratorAPI
from rollyard.tokens import TOKEN_FILE_VARIABLE

DEFAULT_DIRECTORY = Path("rollyard-data")
URL_VARIABLE = "ROLLYARD_URL"

Url = Annotated[str, typer.Option(help="URL of the orchestrator.", envvar=URL_VARIABLE)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Directory = Annotated[Path, typer.Option(help="Directory of logs and the queues' data.")]
All = Annotated[bool, typer.Option("--all", help="Include closed runs.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File of tokens for the orchestrator; not needed for a `rollyard up` on this machine.",
        envvar=TOKEN_FILE_VARIABLE,
    ),
]


def not_empty(name: str) -> str:
    """The given name. Raises `BadParameter` for an empty one, such as an unset shell variable."""
    if not name.strip():
        raise typer.BadParameter("it is empty")
    return name


def connect(url: str, token_file: Path | None) -> OrchestratorAPI:
    return OrchestratorAPI(url, token_file=token_file, patience_seconds=2)


class Listing:
    """Rows under named columns. The first column names the row, and is never folded."""

    def __init__(self, *columns: str, title: str = "") -> None:
        self.title = title
        self._columns = columns
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        made = (Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells)
        self._rows.append(tuple(made))

    def table(self) -> Table:
        made = Table(title=self.title or None, title_justify="left")
        for number, column in enumerate(self._columns):
            made.add_column(column, overflow="fold", no_wrap=number == 0)
        for row in self._rows:
            made.add_row(*row)
        return made

    def lines(self) -> list[str]:
        """The columns' names and the rows, with cells separated by tabs."""
        rows: list[Sequence[str]] = [self._columns]
        rows += [[cell.plain for cell in row] for row in self._rows]
        return ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]


def printable(text: str) -> str:
    """`text` with control characters escaped: a policy may have written some for the terminal."""
    return "".join(
        repr(each)[1:-1] if unicodedata.category(each) == "Cc" and each not in "\n\t" else each
        for each in text
    )


Shown = Iterable[Listing | Text | str]
"""Output for people, part by part."""
Answer = tuple[object, Shown]
"""What a command has found, as a message and for people."""


def show(message: object, shown: Shown, *, json: bool) -> None:
    """Print `message` as one line of JSON if `json`, and else `shown`."""
    if json:
        sys.stdout.write(codec.encode_json(message).decode() + "\n")
        return
    console = Console()
    for number, each in enumerate(shown):
        if isinstance(each, str | Text):
            console.print(each, markup=False, highlight=False, soft_wrap=True)
        elif console.is_terminal:
            console.print(each.table())
        else:
            sys.stdout.write("\n" * (number > 0) + "\n".join(each.lines()) + "\n")


def asks(command: Callable[..., Answer]) -> Callable[..., None]:
    """The command that shows what `command` answers. Its options name the orchestrator, which is
    the first parameter of `command`, and choose JSON."""

    def run(
        *, url: Url = DEFAULT_URL, json: Json = False, token_file: TokenFile = None, **given: Any
    ) -> None:
        show(*command(connect(url, token_file), **given), json=json)

    # typer reads a command's options from its signature, so that is what has to change.
    added = [each for each in inspect.signature(run).parameters.values() if each.name != "given"]
    _, *own = inspect.signature(command).parameters.values()
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    return run
