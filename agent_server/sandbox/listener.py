"""A socket that listens in the network of a sandbox and belongs to this process.

A network is entered by a process of its own: threads of a server that has no privileges may not.
"""

import socket
import subprocess
import sys

from agent_server.sandbox.protocol import SandboxUnavailable

_SECONDS = 20.0
_LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    with socket.socket(fileno=int(sys.argv[2])) as ours:
        socket.send_fds(ours, [b"made"], [listener.fileno()])
"""


def listen_inside(directory: str, port: int, *, privileged: bool) -> socket.socket:
    """A socket that listens on `port` of the loopback of the process with this directory in /proc,
    on a free one for 0. Raises `SandboxUnavailable`."""
    ours, theirs = socket.socketpair()
    ours.settimeout(_SECONDS)
    # Root enters any network; others must first be the root of the sandbox's users.
    user = [] if privileged else ["--user=ns/user", "--preserve-credentials"]
    python = [sys.executable, "-I", "-S", "-c", _LISTEN, str(port), str(theirs.fileno())]
    with ours, theirs:
        try:
            subprocess.run(
                ["/usr/bin/nsenter", "--net=ns/net", *user, "--", *python],
                cwd=directory,
                env={},
                process_group=0,
                pass_fds=(theirs.fileno(),),
                capture_output=True,
                timeout=_SECONDS,
                check=True,
            )
            _, descriptors, _, _ = socket.recv_fds(ours, 16, 1)
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxUnavailable(f"no way out of a sandbox: {error}") from error
    return socket.socket(fileno=descriptors[0])
