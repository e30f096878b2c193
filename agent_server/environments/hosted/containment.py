"""What keeps the processes of environments together, so that all of them can be ended at once.

Each attempt has a process table of its own (a PID namespace): killing its first process kills,
in the kernel and without a race, whatever it has started, daemons and fork storms included. It also
has a user namespace of its own, in which the kernel counts its processes.

This is no sandbox: the code has the rights and the files of the server's user.
"""

import ctypes
import os
import resource
import signal
from pathlib import Path

NOBODY = 65534

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def be_counted() -> None:
    """Let the kernel limit the number of processes, from which it exempts root's own.

    The effective user, whose rights count, stays what it is.
    """
    if os.getresuid() == (0, 0, 0):
        os.setresuid(NOBODY, 0, 0)


def enter_new_namespaces() -> None:
    """The next process that this one forks is the first of a new process table.

    Raises `OSError` where user namespaces are not allowed.
    """
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a PID namespace")
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{user} {user} 1")
    (own / "gid_map").write_text(f"{group} {group} 1")


def limit(*, data_bytes: int, processes: int) -> None:
    """Limit this process and its children; data count for each of them."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    Path("/proc/self/oom_score_adj").write_text("1000")
