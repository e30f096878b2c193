"""Bearer tokens: their roles, and the files that hold them.

- A token file has one `role token` per line. One that others may read (mode not 0600) is refused.
- A line may name Runs, too: `submit <token> train-a,train-b`. The token then opens nothing of any
  other Run.
- A role may have two live tokens, for the same Runs: distribute the new one, then remove the old
  one.
- No token appears in an error, a repr or a command line.
"""

import contextlib
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rollyard.errors import LaunchError
from rollyard.left_files import found_token_file
from rollyard.messages.base import NAME

TOKEN_FILE_VARIABLE = "ROLLYARD_TOKEN_FILE"  # noqa: S105 - a name, not a token
TOKENS_VARIABLE = "ROLLYARD_TOKENS"

LIVE_TOKENS = 2
"""Maximum tokens of a role at a time: the present one and, during a rotation, its successor."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_MAX_BYTES = 65536


class Role(StrEnum):
    """Role of a token's bearer."""

    ADMIN = "admin"
    """Operators, who may call every route."""
    SUBMIT = "submit"
    """Trainers: Runs, Prompts, Batches, weights."""
    WORKER = "worker"
    """Services among each other: registration, heartbeats, Jobs, Results."""
    READ = "read"
    """Readers of status and metrics."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token lets its bearer do."""

    role: Role
    token: str = field(repr=False)
    runs: frozenset[str] = frozenset()
    """The Runs to which it is limited; empty if it is not."""

    def opens(self, run_id: str) -> bool:
        """Whether the Run is not closed to the bearer."""
        return not self.runs or run_id in self.runs


class Tokens:
    """Tokens with what they grant: the ones of all Runs first, in the order of `Role`. They are
    never printed."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        order = list(Role)
        ranked = sorted(grants, key=lambda each: (bool(each.runs), order.index(each.role)))
        self._grants = tuple(ranked)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants)

    def __bool__(self) -> bool:
        return bool(self._grants)

    def __repr__(self) -> str:
        return f"<{len(self._grants)} tokens>"

    @property
    def widest(self) -> str:
        """The most privileged token; empty if there is none."""
        return next((each.token for each in self._grants), "")

    @property
    def for_services(self) -> str:
        """The token that services present to each other; empty if there are no tokens."""
        workers = (each.token for each in self._grants if each.role is Role.WORKER)
        return next(workers, self.widest)


NO_TOKENS = Tokens()
"""Tokens of a service that is open to every caller."""


def parse_tokens(text: str, source: str) -> Tokens:
    """The tokens in `text`. Raises `LaunchError`, which names `source` and no token."""
    grants: list[Grant] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        of_role = len(words) in (2, 3) and words[0] in list(Role) and _TOKEN.fullmatch(words[1])
        runs = words[2].split(",") if len(words) == 3 else []
        if not of_role or not all(NAME.fullmatch(run) for run in runs):
            raise LaunchError(
                f"line {number} of {source} is not a role and a token",
                fix=f"write one of {', '.join(Role)}, a space, and 16 or more random characters; "
                "then, to limit it, a space and the names of runs with commas between them",
            )
        grants.append(Grant(Role(words[0]), words[1], frozenset(runs)))
    _check(grants, source)
    return Tokens(grants)


def _check(grants: list[Grant], source: str) -> None:
    if not grants:
        raise LaunchError(f"{source} has no token", fix="write a role and a token on each line")
    if len({each.token for each in grants}) < len(grants):
        raise LaunchError(f"{source} has one token twice", fix="make a token for each role")
    if any(each.role is Role.WORKER and each.runs for each in grants):
        raise LaunchError(
            f"{source} limits a token of role {Role.WORKER} to runs, and services are of all",
            fix="limit tokens of other roles",
        )
    for (role, runs), number in Counter((each.role, each.runs) for each in grants).items():
        if number > LIVE_TOKENS:
            raise LaunchError(
                f"{source} has more than {LIVE_TOKENS} tokens of role {role}"
                + (f" for {', '.join(sorted(runs))}" if runs else ""),
                fix="take the old ones out",
            )


def read_tokens(path: Path) -> Tokens:
    """The tokens in the file `path`. Raises `LaunchError` if others may read it."""
    return parse_tokens(read_secret(path), str(path))


def read_secret(path: Path) -> str:
    """The text of a file that only its owner may read. Raises `LaunchError` for any other."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())  # of the very file that is read
            if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
                raise LaunchError(
                    f"{path} is not a file for its owner alone, and may have been read by others",
                    fix=f"make new secrets, and `chmod 600 {path}`",
                )
            return file.read(_MAX_BYTES).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise LaunchError(f"cannot read the secrets in {path}: {reason}") from error


def make_token_file(path: Path) -> None:
    """Write one fresh token of each role, unless the file is there already."""
    _write_once(path, "".join(f"{role} {secrets.token_urlsafe(32)}\n" for role in Role))
    read_tokens(path)


def add_token(role: Role, runs: Iterable[str], *, service: Path, bearer: Path) -> None:
    """Make a token, limited to `runs` if there are any. It is written to the new file `bearer`,
    and added to the file `service`. Raises `LaunchError`, and then has changed neither."""
    limited = ",".join(sorted(set(runs)))
    line = f"{role} {secrets.token_urlsafe(32)} {limited}".rstrip() + "\n"
    before = read_secret(service)
    after = before + ("" if before.endswith("\n") or not before else "\n") + line
    parse_tokens(after, str(service))
    if bearer.exists():
        raise LaunchError(f"{bearer} is there already", fix="name a new file for the token")
    _write_once(bearer, line)
    read_tokens(bearer)
    replace_secret(service, after)


def replace_secret(path: Path, text: str) -> None:
    """Replace a file of secrets, or write a new one, whole or not at all; several may do so at
    once."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    _write_once(new, text)
    new.replace(path)


def make_password_file(path: Path) -> None:
    """Write a fresh password, unless the file is there already."""
    _write_once(path, secrets.token_urlsafe(32) + "\n")
    read_secret(path)


def _write_once(path: Path, text: str) -> None:
    with contextlib.suppress(FileExistsError):
        # Made with its mode, so that others cannot read it even for a moment.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)


def environment_tokens() -> Tokens:
    """The tokens that the environment names or holds; empty if it has none. Raises
    `LaunchError`."""
    if path := os.environ.get(TOKEN_FILE_VARIABLE):
        return read_tokens(Path(path))
    if text := os.environ.get(TOKENS_VARIABLE):
        return parse_tokens(text, TOKENS_VARIABLE)
    return NO_TOKENS


def tokens_for(url: str, path: Path | None = None) -> Tokens:
    """The tokens of a caller of the service at `url`: those in the file `path`, else the
    environment's, else those that a `rollyard up` of this user on this machine left for `url`."""
    if path is not None:
        return read_tokens(path)
    if tokens := environment_tokens():
        return tokens
    left = found_token_file(url)
    return NO_TOKENS if left is None else read_tokens(left)


def token_file_for(url: str, path: Path | None = None) -> Path | None:
    """The file whose tokens `tokens_for` gives, wherever links to it lead; None if it gives those
    of no file."""
    named = path or os.environ.get(TOKEN_FILE_VARIABLE)
    found = (
        Path(named) if named else None if os.environ.get(TOKENS_VARIABLE) else found_token_file(url)
    )
    return None if found is None else found.resolve()
