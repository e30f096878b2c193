"""The filter of system calls with which every command in a sandbox runs, as a BPF program.

The kernel gives the program the number, the architecture and the arguments of each call. The
program only jumps forward, and what it does not refuse is allowed.
"""

import platform
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.syscalls import CLONE, IOCTL, REFUSED, SOCKET, Syscall

_LOAD = 0x20
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_IF_ANY_BIT = 0x45
_RETURN = 0x06

_NUMBER = 0
_ARCHITECTURE = 4
_ARGUMENTS = 16
"""Offsets in the kernel's struct seccomp_data."""

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000
_NO_SUCH_CALL = 38

_X32 = 0x40000000
"""Bit of the numbers of x86-64's second table of calls, which none of our programs uses."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
"""Protocol in which programs ask for their own interfaces, even where there are none."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


class Instruction(NamedTuple):
    """One instruction; the jumps count the instructions that are skipped."""

    code: int
    operand: int
    if_true: int = 0
    if_false: int = 0

    def packed(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.operand)


def filter_program(machine: str = "", also: Sequence[Syscall] = ()) -> bytes:
    """The program for this machine's architecture, as `bwrap --seccomp` reads it, which refuses the
    calls of `also` too. Raises `SandboxUnavailable` for an architecture whose calls are not
    known."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(
            f"no filter of system calls is known for {machine}",
            fix=f"run agent servers on one of {', '.join(sorted(_ARCHITECTURES))}",
        )
    return b"".join(each.packed() for each in _program(machine, (*REFUSED, *also)))


def _program(machine: str, refused: Sequence[Syscall]) -> Iterator[Instruction]:
    yield Instruction(_LOAD, _ARCHITECTURE)
    yield from _unless_equal(_ARCHITECTURES[machine], _refuse(_NO_SUCH_CALL))
    yield Instruction(_LOAD, _NUMBER)
    if machine == "x86_64":
        yield Instruction(_IF_AT_LEAST, _X32, 0, 1)
        yield _refuse(_NO_SUCH_CALL)
    for call in refused:
        if (number := _number(call, machine)) is not None:
            yield from _when_equal(number, [_refuse(call.error)])
    for call, test in ((CLONE, _clone()), (SOCKET, _socket()), (IOCTL, _ioctl())):
        yield from _when_equal(_number(call, machine), test)
    yield Instruction(_RETURN, _ALLOW)


def _clone() -> list[Instruction]:
    return [
        _argument(0),
        Instruction(_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _refuse(CLONE.error),
        Instruction(_RETURN, _ALLOW),
    ]


def _socket() -> list[Instruction]:
    """AF_VSOCK among others is in no network namespace: with it a sandbox talks to the host."""
    return [
        _argument(0),
        Instruction(_IF_EQUAL, _UNIX, 5, 0),
        Instruction(_IF_EQUAL, _INET, 4, 0),
        Instruction(_IF_EQUAL, _INET6, 3, 0),
        Instruction(_IF_EQUAL, _NETLINK, 0, 3),
        _argument(2),
        Instruction(_IF_EQUAL, _NETLINK_ROUTE, 0, 1),
        Instruction(_RETURN, _ALLOW),
        _refuse(SOCKET.error),
    ]


def _ioctl() -> list[Instruction]:
    return [
        _argument(1),
        Instruction(_IF_EQUAL, _TIOCSTI, 1, 0),
        Instruction(_IF_EQUAL, _TIOCLINUX, 0, 1),
        _refuse(IOCTL.error),
        Instruction(_RETURN, _ALLOW),
    ]


def _number(call: Syscall, machine: str) -> int | None:
    return call.x86_64 if machine == "x86_64" else call.aarch64


def _argument(index: int) -> Instruction:
    """Load the lower half of an argument: both architectures have it first."""
    return Instruction(_LOAD, _ARGUMENTS + 8 * index)


def _refuse(error: int) -> Instruction:
    return Instruction(_RETURN, _REFUSE | error)


def _when_equal(value: int | None, then: list[Instruction]) -> Iterable[Instruction]:
    assert value is not None
    return [Instruction(_IF_EQUAL, value, 0, len(then)), *then]


def _unless_equal(value: int, then: Instruction) -> Iterable[Instruction]:
    return [Instruction(_IF_EQUAL, value, 1, 0), then]
