"""The command lines of a sandbox and of the commands in it, as pure functions.

A sandbox has a read-only root with /usr alone, a private /tmp and workspace, and no network. A
command in it has beside that an own process table, no environment, no capability and no way to a
new user namespace. Limits are set inside, after the user namespace is made, because the kernel
counts processes by namespace there.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent_server.sandbox.protocol import WORKSPACE
from agent_server.sandbox.proxy import PROXY_PORT
from agent_server.sandbox.totals import SandboxTotals
from rollyard.messages import check

NOBODY = 65534
PATH = "/usr/bin:/bin"
IMAGE_PATH = f"/usr/local/bin:{PATH}"
"""Images have what they were made for in /usr/local."""
FILTER = 9
"""Descriptor on which bwrap reads the filter of system calls."""
CANNOT_EXECUTE = 126
"""A shell's exit code for a command that exists and cannot be started."""

_MAX_ARGUMENT_BYTES = 131_071
"""The kernel's MAX_ARG_STRLEN without the NUL at the end."""
_MAX_COMMAND_BYTES = 1 << 20
"""Limit on all arguments together; the kernel's is a quarter of the stack limit, 2 MiB by
default."""

PACKAGE = "/rollyard"
"""Directory of bwrap inside, with which commands are started in there. It is a mount at the top, in
the place of which a command can put nothing."""
NO_PRELOAD = "no-preload"
"""Name of an empty file in there, which every loader reads as its list of libraries to load first:
else a command of an image that belongs to its user could write one."""
STUB = "bash"
"""Name of the file in there through which the bash session runs a command; bash shows it before its
own errors."""

_ENTER_GROUPS = """
for group; do
  shift
  [ "$group" = -- ] && break
  echo 0 > "$group/cgroup.procs" || exit 125
done
"""
"""Enters control groups, before the command that is in them begins. 0 stands for the writer."""
_BECOME = 'exec "$@"'
_BECOME_FILTERED = f'exec "$@" {FILTER}< "$0"'

_PROXIED = tuple(
    word
    for name in ("HTTPS_PROXY", "https_proxy")
    for word in ("--setenv", name, f"http://127.0.0.1:{PROXY_PORT}")
)

HOLD = "echo; read"
"""Says that the sandbox is made, and ends with its input, so with the server that holds that."""

# The first process of its process table: once it has ended, the kernel has killed all others. It is
# not the command itself, which as a first process would not feel its own signals; what it has to
# say about a command's death is not said. Pending signals are counted for the user of all
# sandboxes; a machine that allows fewer keeps its own limit.
_CONFINE = """
ulimit -S -c 0; ulimit -H -c 0
ulimit -u "$1" -v "$2" -t "$3" -f "$4" -n 256 || exit 125
ulimit -i 1024 2>/dev/null
printf 1000 > /proc/self/oom_score_adj || exit 125
shift 4
cd "$HOME" 2>/dev/null
unset OLDPWD
exec 3>&2 2>/dev/null
(exec "$@" 2>&3 3>&-)
exit $?
"""


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on one command or bash session; memory, CPU and file size count for each process, and
    `tmp_bytes` for the sandbox."""

    processes: int = 64
    memory_bytes: int = 1 << 30
    cpu_seconds: int = 60
    file_bytes: int = 64 << 20
    tmp_bytes: int = 64 << 20
    output_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            check(value >= 1, f"sandbox limit {name} must be positive, got {value}")


def grouped(argv: Sequence[str], groups: Sequence[Path], filter_file: Path | None) -> list[str]:
    """The command line that becomes `argv` in these control groups, with the filter of system calls
    for bwrap to read, if there is one."""
    script = _ENTER_GROUPS + (_BECOME if filter_file is None else _BECOME_FILTERED)
    return ["/bin/sh", "-c", script, str(filter_file), *map(str, groups), "--", *argv]


def held(name: str, root: Sequence[str]) -> list[str]:
    """The arguments with which bwrap makes a sandbox with this root, and keeps it until its
    standard input ends. Its process is called `name`."""
    return [
        *("--unshare-all", "--unshare-user", "--as-pid-1", "--new-session", "--clearenv"),
        # With any other user, bwrap would make a second user namespace that may not be entered.
        *("--uid", "0", "--gid", "0", "--cap-drop", "ALL"),
        *("--hostname", "sandbox"),
        *root,
        *("--", "/bin/bash", "-c", HOLD, name),
    ]


def own_files(package: Path, limits: SandboxLimits, totals: SandboxTotals) -> list[str]:
    """The options for what a sandbox has of its own in any root. `package` is the directory of
    bwrap. The workspace is in memory, so that the kernel knows its size and removes it."""
    tmp, workspace = ("--size", str(limits.tmp_bytes)), ("--size", str(totals.disk_bytes))
    return [
        *("--proc", "/proc"),
        *("--dev", "/dev", *tmp, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108 - the sandbox's own
        *(*tmp, "--tmpfs", "/tmp"),  # noqa: S108 - the sandbox's own
        *("--ro-bind", str(package), PACKAGE),
        *("--ro-bind", str(package / NO_PRELOAD), "/etc/ld.so.preload"),
        *(*workspace, "--tmpfs", WORKSPACE),
    ]


def entered(bwrap: Sequence[str]) -> list[str]:
    """The command line, but for its arguments, that runs `bwrap` in the sandbox of the process
    whose directory in /proc is the current one."""
    kinds = {"user": "user", "mount": "mnt", "net": "net", "ipc": "ipc", "uts": "uts", "pid": "pid"}
    namespaces = [f"--{option}=ns/{name}" for option, name in kinds.items()]
    return ["/usr/bin/nsenter", *namespaces, "--preserve-credentials", "--", *bwrap]


def confined(
    argv: Sequence[str], limits: SandboxLimits, *, path: str = PATH, proxied: bool = False
) -> list[str]:
    """The arguments with which bwrap, inside a sandbox, runs `argv` with everything that a command
    must not share with others."""
    return [
        *_namespaces(),
        *("--setenv", "PATH", path),
        *(_PROXIED if proxied else ()),
        *("--seccomp", str(FILTER)),
        *("--", *limited(argv, limits, str(limits.processes))),
    ]


def limited(argv: Sequence[str], limits: SandboxLimits, processes: str) -> list[str]:
    """The command line that runs `argv` within the limits, with `processes` as `ulimit` takes
    them."""
    return [
        *("/bin/bash", "-c", _CONFINE, "confine"),
        processes,
        str(limits.memory_bytes // 1024),
        str(limits.cpu_seconds),
        str(max(1, limits.file_bytes // 1024)),
        *argv,
    ]


def why_not_executable(argv: Sequence[str]) -> str:
    """The reason why no kernel can start this command; empty if one can."""
    try:
        words = [os.fsencode(word) for word in argv]
    except UnicodeEncodeError:
        return "cannot execute: an argument is not Unicode\n"
    if any(b"\0" in word for word in words):
        return "cannot execute: an argument contains a NUL\n"
    longest, total = max(map(len, words), default=0), sum(len(word) + 1 for word in words)
    if longest > _MAX_ARGUMENT_BYTES or total > _MAX_COMMAND_BYTES:
        return "cannot execute: argument list too long\n"
    return ""


def as_nobody(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as an unprivileged user: as root it would own root's
    files."""
    user = f"--reuid={NOBODY}"
    group = f"--regid={NOBODY}"
    return ["/usr/bin/setpriv", user, group, "--clear-groups", "--no-new-privs", "--", *command]


def _namespaces() -> list[str]:
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--as-pid-1"),
        "--disable-userns",
        *("--uid", str(NOBODY), "--gid", str(NOBODY)),
        *("--cap-drop", "ALL"),
        "--new-session",
        "--die-with-parent",
        "--clearenv",
        *("--setenv", "HOME", WORKSPACE),
        *("--setenv", "LANG", "C.UTF-8"),
        *("--dev-bind", "/", "/", "--proc", "/proc"),
        # It would name the keys of the server's session, to which its processes belong.
        *("--ro-bind", "/dev/null", "/proc/keys"),
    ]
