"""Containment of the processes of environments, so that all of an attempt's end at once.

Each attempt has a process table of its own (a PID namespace): killing its first process kills,
in the kernel and without a race, whatever it has started, daemons and fork storms included. It also
has a user namespace of its own, in which the kernel counts its processes.

This is no sandbox: the code has the rights and the files of the server's user.
"""

import contextlib
import ctypes
import errno
import os
import resource
import signal
import socket
from pathlib import Path

import msgspec

from rollyard.messages import check

NOBODY = 65534

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_PR_SET_PDEATHSIG = 1
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_PRIVATE = 1 << 14, 1 << 18

_TRIED, _MAPPED = b"?", b"!"

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the processes of one attempt's environment."""

    data_bytes: int = 4 << 30
    """Writable memory of each process."""
    processes: int = 256
    """Number of processes and threads together."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            check(value >= 1, f"environment limit {name} must be positive, got {value}")


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that forked it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def be_counted() -> None:
    """Let the kernel limit the number of processes, from which it exempts root's own. The effective
    user, whose rights count, stays the same."""
    if os.getresuid() == (0, 0, 0):
        os.setresuid(NOBODY, 0, 0)


def enter_new_namespaces(outside: socket.socket | None = None) -> None:
    """Make the next process that this one forks the first of a new process table. Raises `OSError`
    where user namespaces are not allowed.

    At the other end of `outside`, a process that stays outside calls `help_in`; without it one is
    forked for that.
    """
    if os.geteuid() == 0:
        return _enter_as_root(outside)
    user, group = os.geteuid(), os.getegid()
    _unshare()
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{user} {user} 1")
    (own / "gid_map").write_text(f"{group} {group} 1")
    return None


def help_in(line: socket.socket) -> None:
    """Do from outside what `enter_new_namespaces` at the other end cannot: only a process that
    stays outside may map more than one user."""
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        _, entering, _, _ = socket.recv_fds(line, 1, 1)
        for process in entering:
            _map_root_and_nobody(process)
            line.send(_MAPPED)
    line.shutdown(socket.SHUT_WR)  # so that one who was not helped need not wait


def _enter_as_root(outside: socket.socket | None) -> None:
    """Enter them with an unprivileged user beside root, as whom sandboxes run."""
    if outside is not None:
        return _enter_helped(outside)
    ours, theirs = socket.socketpair()
    if (helper := os.fork()) == 0:
        ours.close()
        help_in(theirs)
        os._exit(0)
    theirs.close()
    try:
        with ours:
            return _enter_helped(ours)
    finally:
        os.waitpid(helper, 0)


def _enter_helped(outside: socket.socket) -> None:
    own, entered = os.open("/proc/self", os.O_DIRECTORY), []
    try:
        _unshare()
        entered.append(own)
    finally:
        socket.send_fds(outside, [_TRIED], entered)
        os.close(own)
    if outside.recv(1) != _MAPPED:
        raise OSError(errno.EPERM, "cannot map users into a PID namespace")


def _map_root_and_nobody(process: int) -> None:
    try:
        for name in ("uid_map", "gid_map"):
            descriptor = os.open(name, os.O_WRONLY, dir_fd=process)
            try:
                os.write(descriptor, f"0 0 1\n{NOBODY} {NOBODY} 1".encode())
            finally:
                os.close(descriptor)
    finally:
        os.close(process)


def _unshare() -> None:
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a PID namespace")


def prepare_for_sandboxes() -> None:
    """Let this process make sandboxes: it and its children, they alone, see their own process table
    in /proc. Raises `OSError`."""
    # A shell whose real user is another than the effective one gives up the latter's rights.
    os.setresuid(os.geteuid(), os.geteuid(), os.geteuid())
    if Path("/proc/self").readlink().name == str(os.getpid()):
        return
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a mount namespace")
    private, shielded = _MS_REC | _MS_PRIVATE, _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    for place, kind, flags in ((b"/", None, private), (b"/proc", b"proc", shielded)):
        if _libc.mount(b"none", place, kind, flags, None) != 0:
            raise OSError(ctypes.get_errno(), f"cannot mount {place.decode()}")


def limit(limits: ProcessLimits) -> None:
    """Set the limits of this process and its children."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (limits.data_bytes, limits.data_bytes))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))
    Path("/proc/self/oom_score_adj").write_text("1000")
