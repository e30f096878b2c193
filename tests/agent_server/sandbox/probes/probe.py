"""What a probe is: something that model-written code tries, and must not get."""

import msgspec

_SHELL = """
held() { if "$@" 2>&1; then echo ESCAPED; else echo HELD; fi; }
"""

_PYTHON = """
import ctypes, os, platform, resource, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
x86 = platform.machine() == "x86_64"

def call(x86_64, aarch64, *arguments):
    number = x86_64 if x86 else aarch64
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    answer = libc.syscall(number, *whole)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer

def held(action, *arguments):
    try:
        action(*arguments)
    except (OSError, AttributeError) as error:
        print("HELD", error)
    else:
        print("ESCAPED")
"""


class Probe(msgspec.Struct, frozen=True):
    """Code that prints ESCAPED for all that it got and HELD for all that was denied. It is given
    the surroundings of the sandbox by name, in braces."""

    name: str
    code: str
    python: bool = False

    def argv(self, surroundings: dict[str, str]) -> list[str]:
        code = self.code
        for name, value in surroundings.items():
            code = code.replace("{" + name + "}", value)
        if self.python:
            return ["/usr/bin/python3", "-c", _PYTHON + code]
        return ["/bin/bash", "-c", _SHELL + code]


def shell(name: str, code: str) -> Probe:
    return Probe(name, code)


def python(name: str, code: str) -> Probe:
    return Probe(name, code, python=True)
