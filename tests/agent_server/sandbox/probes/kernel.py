# ruff: noqa: E501 - a probe is a line
"""Attempts on the kernel itself, by calls that no sandbox needs."""

from tests.agent_server.sandbox.probes.probe import python

_I386 = """
import mmap
if x86:
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # getpid by the gate of 32-bit programs
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    print("ESCAPED" if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else "HELD")
else:
    print("HELD")
"""

# fmt: off
KERNEL = (
    python("load a program into the kernel", "held(call, 321, 280, 5, 0, 0)"),
    python("measure the kernel", "held(call, 298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0)"),
    python("handle page faults", "held(call, 323, 282, 0)"),
    python("hand over calls in a ring", "held(call, 425, 425, 1, ctypes.create_string_buffer(128))"),
    python("take all asynchronous input", "held(call, 206, 0, 60000, ctypes.byref(ctypes.c_ulong(0)))"),
    python("load a module", "held(call, 313, 273, 0, b'', 0)"),
    python("unload a module", "held(call, 176, 106, b'loop', 0)"),
    python("load another kernel", "held(call, 246, 104, 0, 0, 0, 0)"),
    python("open a file system", "held(call, 430, 430, b'tmpfs', 0)"),
    python("copy a mount", "held(call, 428, 428, -100, b'/', 1)"),
    python("swap to a file", "held(call, 167, 224, b'/workspace/x', 0)"),
    python("restart the machine", "held(call, 169, 142, 0xfee1dead, 672274793, 0x01234567, 0)"),
    python("set the clock", "held(call, 227, 112, 0, struct.pack('<qq', 1, 0))"),
    python("rename the machine", "held(socket.sethostname, 'mine')"),
    python("read the kernel's log", "held(call, 103, 116, 3, ctypes.create_string_buffer(64), 64)"),
    python("account for processes", "held(call, 163, 89, 0)"),
    python("watch all files", "held(call, 300, 262, 0, 0)"),
    python("hide memory from the kernel", "held(call, 447, 447, 0)"),
    python("call as a 32-bit program", _I386),
    python("call by the second table", "held(call, 0x40000000 + 39, -1)"),
)
# fmt: on
