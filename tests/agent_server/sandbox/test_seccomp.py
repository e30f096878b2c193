"""The filter of system calls, run here by a small BPF machine: what it decides for both
architectures. What this kernel makes of it is tried from inside a sandbox (see `probes`)."""

import errno
import functools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.sandbox.protocol import SandboxUnavailable
from agent_server.sandbox.seccomp import filter_program
from agent_server.sandbox.syscalls import CLONE, IOCTL, REFUSED, SOCKET, Syscall

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
EVERYDAY = {"x86_64": (0, 1, 9, 39, 57, 59, 60, 202, 231), "aarch64": (63, 64, 93, 98, 172, 221)}
"""read, write, mmap, getpid, fork, execve, exit, futex and their like."""
VSOCK, PACKET, ALG, NETLINK = 40, 17, 38, 16


def decision(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the program returns for this call."""
    program = _instructions(machine)
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    at = ARCHITECTURES[machine] if architecture is None else architecture
    data = struct.pack("=iIQ6Q", number, at, 0, *padded)
    value, position = 0, 0
    while True:
        code, if_true, if_false, operand = program[position]
        position += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x06:
                return int(operand)
            case 0x15:
                position += if_true if value == operand else if_false
            case 0x35:
                position += if_true if value >= operand else if_false
            case 0x45:
                position += if_true if value & operand else if_false
            case _:
                pytest.fail(f"unknown instruction {code:#x}")


@functools.cache
def _instructions(machine: str) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", filter_program(machine)))


def number_of(call: Syscall, machine: str) -> int:
    number = call.x86_64 if machine == "x86_64" else call.aarch64
    assert number is not None
    return number


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_call_of_the_table_is_refused_with_its_error(machine: str) -> None:
    for call in REFUSED:
        number = call.x86_64 if machine == "x86_64" else call.aarch64
        if number is not None:
            assert decision(machine, number) == REFUSE | call.error, call.name


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_no_call_has_the_number_of_another(machine: str) -> None:
    numbers = [
        call.x86_64 if machine == "x86_64" else call.aarch64
        for call in (*REFUSED, CLONE, SOCKET, IOCTL)
    ]
    there = [number for number in numbers if number is not None]
    assert len(set(there)) == len(there)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_programs_do_all_day_is_allowed(machine: str) -> None:
    for number in EVERYDAY[machine]:
        assert decision(machine, number) == ALLOW


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_process_or_thread_is_made_and_a_namespace_is_not(machine: str) -> None:
    clone = number_of(CLONE, machine)
    thread, child, new_user_namespace = 0x3D0F00, 0x01200011, 0x10000011
    assert decision(machine, clone, thread) == decision(machine, clone, child) == ALLOW
    assert decision(machine, clone, new_user_namespace) == REFUSE | errno.EPERM


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_only_sockets_that_a_network_namespace_holds_are_made(machine: str) -> None:
    socket = number_of(SOCKET, machine)
    for family in (1, 2, 10, NETLINK):
        assert decision(machine, socket, family) == ALLOW
    for family in (VSOCK, PACKET, ALG):
        assert decision(machine, socket, family) == REFUSE | errno.EAFNOSUPPORT
    audit = 9
    assert decision(machine, socket, NETLINK, 3, audit) == REFUSE | errno.EAFNOSUPPORT


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_nothing_is_typed_into_a_terminal(machine: str) -> None:
    ioctl = number_of(IOCTL, machine)
    assert decision(machine, ioctl, 0, 0x5412) == REFUSE | errno.EPERM
    assert decision(machine, ioctl, 0, 0xFFFF_FFFF_0000_5412) == REFUSE | errno.EPERM
    assert decision(machine, ioctl, 0, 0x5413) == ALLOW


def test_calls_of_another_architecture_do_not_exist() -> None:
    i386, x32_getpid = 0x40000003, 0x40000000 + 39
    assert decision("x86_64", 39, architecture=i386) == REFUSE | errno.ENOSYS
    assert decision("x86_64", x32_getpid) == REFUSE | errno.ENOSYS


@given(machine=st.sampled_from(sorted(ARCHITECTURES)), number=st.integers(0, 0x3FFFFFFF))
def test_every_call_is_decided(machine: str, number: int) -> None:
    assert decision(machine, number) & 0xFFFF0000 in (ALLOW, REFUSE)


def test_a_machine_whose_calls_are_not_known_gets_no_filter() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        filter_program("riscv64")
