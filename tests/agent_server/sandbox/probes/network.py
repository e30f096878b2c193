# ruff: noqa: E501 - a probe is a line
"""Attempts to reach anything. `{port}` is a TCP and UDP port of the host's, `{address}` its address,
`{marker}` the name of an abstract socket, `{socket}` the path of another."""

from tests.agent_server.sandbox.probes.probe import python, shell

# fmt: off
NETWORK = (
    python("connect to the host's loopback", "held(socket.create_connection, ('127.0.0.1', {port}), 2)"),
    python("connect to it by IPv6", "held(socket.create_connection, ('::1', {port}), 2)"),
    python("connect to the host's address", "held(socket.create_connection, ('{address}', {port}), 2)"),
    python("send to the host's address", "udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nheld(udp.sendto, b'x', ('{address}', {port}))"),
    python("connect to the world", "held(socket.create_connection, ('192.0.2.1', 80), 2)"),
    python("find a name", "held(socket.getaddrinfo, 'example.com', 80)"),
    python("reach an abstract socket", "held(socket.socket(socket.AF_UNIX).connect, '\\0{marker}')"),
    python("reach a socket by its path", "held(socket.socket(socket.AF_UNIX).connect, '{socket}')"),
    python("reach the hypervisor", "held(lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1)))"),
    python("take a port of the machine", "held(lambda: socket.socket(40, socket.SOCK_STREAM).bind((-1 & 0xFFFFFFFF, 47123)))"),
    python("see all packets", "held(socket.socket, 17, socket.SOCK_RAW, 0x0300)"),
    python("write packets", "held(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)"),
    python("use the kernel's ciphers", "held(socket.socket, 38, socket.SOCK_SEQPACKET)"),
    python("use the radio", "held(socket.socket, 31, socket.SOCK_RAW, 1)"),
    python("use the fast path for packets", "held(socket.socket, 44, socket.SOCK_RAW)"),
    python("manage the keys of tunnels", "held(socket.socket, 15, socket.SOCK_RAW, 2)"),
    python("listen to the kernel's audit", "held(socket.socket, 16, socket.SOCK_RAW, 9)"),
    python("listen to the kernel's events", "held(socket.socket, 16, socket.SOCK_RAW, 15)"),
    shell("have another interface", "held grep -vE 'Inter|face|lo:' /proc/net/dev"),
    shell("route packets", "held bash -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'"),
)
# fmt: on
