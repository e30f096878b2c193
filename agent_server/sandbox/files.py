"""Files of a sandbox, read and written from outside, whatever its commands do meanwhile.

- A path is followed one name at a time from the sandbox's own root, through no symbolic link: a
  command that swaps a directory for a link leads nowhere, and never out of the sandbox.
- What is opened is looked at after it is open; nothing here waits for a command, as a pipe would
  make it wait.
- All of it is system calls of this thread, with the rights of the sandbox's user: no command of the
  sandbox can see it or forge it, and none can lend it the server's rights.
"""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from agent_server.sandbox.protocol import WORKSPACE, FileRefused

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without waiting: for the writer of a pipe, or the holder of a lease on the file.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)

_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.ELOOP: "it is, or is behind, a symbolic link",
    errno.ENOTDIR: "something on the way is a symbolic link or no directory",
    errno.EISDIR: "it is a directory",
}


def read_file(root: int, path: str, most_bytes: int) -> bytes:
    """The content of the regular file at `path` below the directory `root`. Raises
    `FileRefused`."""
    with _guarding("read", path):
        *directories, name = _names(path)
        with _descend(root, directories) as parent:
            opened = os.open(name, _READ, dir_fd=parent)
        with os.fdopen(opened, "rb", buffering=0) as file:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode):
                raise FileRefused(f"{path!r} cannot be read: it is no regular file")
            content = bytearray()
            while len(content) <= most_bytes:
                if not (chunk := file.read(min(_CHUNK_BYTES, most_bytes + 1 - len(content)))):
                    return bytes(content)
                content += chunk
    raise FileRefused(f"{path!r} cannot be read: it has more than {most_bytes} bytes")


def write_file(root: int, path: str, content: bytes) -> None:
    """Put a file at `path` below the directory `root`, with the directories that lead to it, in
    place of what is there. Raises `FileRefused`."""
    with _guarding("written", path):
        *directories, name = _names(path)
        with _descend(root, directories, make=True) as parent:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            created = os.open(name, _CREATE, 0o644, dir_fd=parent)
        with os.fdopen(created, "wb", buffering=0) as file:
            left = memoryview(content)
            while left:
                left = left[file.write(left) or 0 :]


@contextmanager
def files_of(user: int) -> Iterator[None]:
    """Give this thread the rights of `user` over files, and take them back after the block."""
    # In the file system of a user namespace, root itself may make no file. The C library sets these
    # for the calling thread alone, as the kernel does.
    user_before, group_before = _libc.setfsuid(-1), _libc.setfsgid(-1)
    _libc.setfsgid(user)
    _libc.setfsuid(user)
    try:
        yield
    finally:
        _libc.setfsuid(user_before)
        _libc.setfsgid(group_before)


def _names(path: str) -> list[str]:
    """The names on the way from the root to `path`."""
    names = [name for name in PurePosixPath(WORKSPACE, path).parts if name != "/"]
    if ".." in names or not names or "\0" in path:
        raise FileRefused(f"{path!r} cannot be used: it must be the plain path of a file")
    return names


@contextmanager
def _descend(root: int, names: list[str], *, make: bool = False) -> Iterator[int]:
    """Yield a descriptor of the directory that `names` lead to from `root`; with `make`, those that
    are missing are made."""
    with contextlib.ExitStack() as held:
        directory = root
        for name in names:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=directory)
            directory = os.open(name, _DIRECTORY, dir_fd=directory)
            held.callback(os.close, directory)
        yield directory


@contextmanager
def _guarding(done: str, path: str) -> Iterator[None]:
    """Turn what the system refuses into `FileRefused`."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        reason = _REASONS.get(number or 0, str(error))
        raise FileRefused(f"{path!r} cannot be {done}: {reason}") from error
