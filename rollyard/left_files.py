"""What a `rollyard up` leaves for this user's programs on this machine: how to call it.

- Links to its files, named after its address, in a directory that is this user's alone.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from rollyard.errors import LaunchError

_TOKENS, _CAS = "tokens", "ca"


@contextlib.contextmanager
def left_for_clients(url: str, tokens: Path, ca_file: Path | None = None) -> Iterator[None]:
    """A block in which this user's Clients on this machine find the token file of `url`, and the
    file of the CAs of its certificate."""
    links = {_left(url, _TOKENS): tokens, _left(url, _CAS): ca_file}
    directory = left_token_file(url).parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(directory):
        raise LaunchError(
            f"{directory} is not this user's alone", fix="remove it, or set XDG_RUNTIME_DIR"
        )
    for link, target in links.items():
        link.unlink(missing_ok=True)
        if target is not None:
            link.symlink_to(target)
    try:
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)


def left_token_file(url: str) -> Path:
    """Path at which Clients on this machine look for the token file of the service at `url`."""
    return _left(url, _TOKENS)


def found_token_file(url: str) -> Path | None:
    """The token file that was left for `url`, if there is one."""
    return _found(left_token_file(url))


def found_ca_file(url: str) -> Path | None:
    """The file of CAs that was left for `url`, if there is one."""
    return _found(_left(url, _CAS))


def _left(url: str, kind: str) -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(runtime) / "rollyard" if runtime else None
    if directory is None:
        directory = Path(tempfile.gettempdir()) / f"rollyard-{os.getuid()}"
    return directory / f"{urlsplit(url).netloc.rpartition('@')[2].replace(':', '-')}.{kind}"


def _found(left: Path) -> Path | None:
    return left if _is_ours(left.parent) and left.exists() else None


def _is_ours(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        status = directory.lstat()  # not `stat`: another user's link to our directory must not pass
        private = not stat.S_IMODE(status.st_mode) & 0o022
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and private
    return False
