"""The system calls that a sandbox refuses, with their numbers by architecture.

None of them is of use to a program that builds, tests or computes. They reach what no namespace
divides (keys, kernel memory, modules, clocks), have been the way out of sandboxes before
(user namespaces, io_uring, userfaultfd, bpf), or let one process of a sandbox rewrite another.
"""

import errno

import msgspec


class Syscall(msgspec.Struct, frozen=True):
    """A system call that is refused."""

    name: str
    x86_64: int | None
    """Number on this architecture; None where it does not exist."""
    aarch64: int | None
    error: int = errno.EPERM


def _same_everywhere(name: str, number: int, error: int = errno.EPERM) -> Syscall:
    """A call of the common numbers, which are all from 424 on."""
    return Syscall(name, number, number, error)


_KEYS = (
    Syscall("add_key", 248, 217),
    Syscall("request_key", 249, 218),
    Syscall("keyctl", 250, 219),
)
_KERNEL = (
    Syscall("syslog", 103, 116),
    Syscall("init_module", 175, 105),
    Syscall("delete_module", 176, 106),
    Syscall("finit_module", 313, 273),
    Syscall("kexec_load", 246, 104),
    Syscall("kexec_file_load", 320, 294),
    Syscall("bpf", 321, 280),
    Syscall("perf_event_open", 298, 241),
    Syscall("userfaultfd", 323, 282),
    Syscall("lookup_dcookie", 212, 18),
    Syscall("modify_ldt", 154, None),
    Syscall("uselib", 134, None),
    Syscall("ustat", 136, None),
    Syscall("sysfs", 139, None),
    Syscall("iopl", 172, None),
    Syscall("ioperm", 173, None),
    Syscall("reboot", 169, 142),
    Syscall("acct", 163, 89),
    Syscall("nfsservctl", 180, 42, errno.ENOSYS),
    Syscall("vhangup", 153, 58),
    # Programs fall back to ordinary input and output without it.
    _same_everywhere("io_uring_setup", 425, errno.ENOSYS),
    _same_everywhere("io_uring_enter", 426, errno.ENOSYS),
    _same_everywhere("io_uring_register", 427, errno.ENOSYS),
    # The whole machine has a limit on it, which one sandbox could use up.
    Syscall("io_setup", 206, 0, errno.ENOSYS),
    _same_everywhere("memfd_secret", 447, errno.ENOSYS),
)
_MOUNTS = (
    Syscall("mount", 165, 40),
    Syscall("umount2", 166, 39),
    Syscall("pivot_root", 155, 41),
    Syscall("chroot", 161, 51),
    Syscall("swapon", 167, 224),
    Syscall("swapoff", 168, 225),
    Syscall("quotactl", 179, 60),
    Syscall("open_by_handle_at", 304, 265),
    Syscall("fanotify_init", 300, 262),
    _same_everywhere("open_tree", 428),
    _same_everywhere("move_mount", 429),
    _same_everywhere("fsopen", 430),
    _same_everywhere("fsconfig", 431),
    _same_everywhere("fsmount", 432),
    _same_everywhere("fspick", 433),
    _same_everywhere("mount_setattr", 442),
    _same_everywhere("quotactl_fd", 443),
    _same_everywhere("open_tree_attr", 467),
)
_NAMESPACES = (
    Syscall("unshare", 272, 97),
    Syscall("setns", 308, 268),
    Syscall("sethostname", 170, 161),
    Syscall("setdomainname", 171, 162),
    # Its flags lie in memory, which no filter reads. The C library falls back to clone.
    _same_everywhere("clone3", 435, errno.ENOSYS),
)
_CLOCKS = (
    Syscall("settimeofday", 164, 170),
    Syscall("clock_settime", 227, 112),
    Syscall("clock_adjtime", 305, 266),
    Syscall("adjtimex", 159, 171),
)
_OTHER_PROCESSES = (
    Syscall("ptrace", 101, 117),
    Syscall("process_vm_readv", 310, 270),
    Syscall("process_vm_writev", 311, 271),
    Syscall("kcmp", 312, 272),
    Syscall("migrate_pages", 256, 238),
    Syscall("move_pages", 279, 239),
    _same_everywhere("pidfd_getfd", 438),
    _same_everywhere("process_madvise", 440),
)

REFUSED = (*_KEYS, *_KERNEL, *_MOUNTS, *_NAMESPACES, *_CLOCKS, *_OTHER_PROCESSES)
"""Calls that are refused whatever their arguments."""

UNCOUNTED = (Syscall("shmget", 29, 194, errno.ENOSYS),)
"""Calls for memory that only control groups count, refused where there are none."""

CLONE = Syscall("clone", 56, 220)
"""Refused with a flag for a new namespace."""
SOCKET = Syscall("socket", 41, 198, errno.EAFNOSUPPORT)
"""Refused for most address families."""
IOCTL = Syscall("ioctl", 16, 29)
"""Refused where it would write into a terminal as if its user had typed."""
