"""`rollyard token`: make a token for somebody else, of one role and, if wanted, of some runs."""

from pathlib import Path
from typing import Annotated

import typer

from launch.output import DEFAULT_DIRECTORY, Json, show
from rollyard.tokens import Role, add_token

RoleName = Annotated[Role, typer.Argument(help="What its bearer may do.")]
For = Annotated[
    list[str] | None,
    typer.Option("--run", metavar="RUN", help="Limit it to this run; repeat it for several."),
]
To = Annotated[
    Path, typer.Option("--to", help="New file for the token, to be handed to its bearer.")
]
Into = Annotated[
    Path,
    typer.Option("--into", help="Token file of the services, which it is added to."),
]


def token_command(
    role: RoleName,
    to: To,
    run: For = None,
    into: Into = DEFAULT_DIRECTORY / "tokens",
    json: Json = False,
) -> None:
    """Make a token. Services know it once they have been started again."""
    runs = tuple(dict.fromkeys(run or ()))
    add_token(role, runs, service=into, bearer=to)
    limit = f", for {', '.join(runs)} alone" if runs else ""
    said = f"{to} has a token of role {role}{limit}. Restart the services to let its bearer in."
    show({"role": role, "runs": runs, "token_file": str(to)}, [said], json=json)
