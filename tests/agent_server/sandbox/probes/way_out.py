# ruff: noqa: E501 - a probe is a line
"""Attempts of an agent to reach more than the gateway, to which its sandbox is led. `{way}` is the
port inside that leads to `{gateway}`, and `{beside}` one in another sandbox. `{port}` is a TCP and UDP
port of the host's, which says hello, `{address}` its address, and `{marker}` the name of an abstract
socket."""

from tests.agent_server.sandbox.probes.probe import Probe, python

_HTTP = """
def ask(said, way={way}):
    peer = socket.create_connection(("127.0.0.1", way), 5)
    peer.sendall(said)
    peer.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: peer.recv(65536), b""))

def refused(said, times=1):
    got = ask(said)
    heads = [line for line in got.split(b"\\r\\n") if line.startswith(b"HTTP/1.1 ")]
    held = b"hello" not in got and len(heads) <= times
    print("HELD" if held and all(b" 4" in head[:12] for head in heads) else "ESCAPED", got[:300])
"""


def http(name: str, code: str) -> Probe:
    return python(name, _HTTP + code)


# fmt: off
WAY_OUT = (
    python("find another open port", "rows = [line.split() for kind in ('tcp', 'tcp6', 'udp', 'udp6') for line in open('/proc/net/' + kind).read().splitlines()[1:]]\nfound = {int(row[1].split(':')[1], 16) for row in rows if row[3] in ('0A', '07')}\nprint('HELD' if found == {{way}} else 'ESCAPED', found)"),
    python("connect to the gateway's own port", "held(socket.create_connection, ('127.0.0.1', {gateway}), 2)"),
    python("connect to a service of the host", "held(socket.create_connection, ('127.0.0.1', {port}), 2)"),
    python("connect to it by IPv6", "held(socket.create_connection, ('::1', {port}), 2)"),
    python("connect to the way by IPv6", "held(socket.create_connection, ('::1', {way}), 2)"),
    python("connect to it by IPv4 in IPv6", "held(socket.create_connection, ('::ffff:127.0.0.1', {port}), 2)"),
    python("connect to the host's address", "held(socket.create_connection, ('{address}', {port}), 2)"),
    python("connect to the host's address and the way's port", "held(socket.create_connection, ('{address}', {gateway}), 2)"),
    python("connect to another sandbox's way out", "if {beside} == {way}:\n    print('HELD')\nelse:\n    held(socket.create_connection, ('127.0.0.1', {beside}), 2)"),
    python("ask the cloud for its metadata", "held(socket.create_connection, ('169.254.169.254', 80), 2)"),
    python("ask the cloud by IPv6", "held(socket.create_connection, ('fd00:ec2::254', 80), 2)"),
    python("ask a resolver of the machine", "udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nudp.connect(('127.0.0.53', 53))\nudp.settimeout(1)\nudp.send(b'\\0' * 12)\nheld(udp.recv, 512)"),
    python("ask a resolver of the world", "udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nheld(udp.sendto, b'x', ('192.0.2.53', 53))"),
    python("send to a service of the host", "udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nudp.connect(('127.0.0.1', {port}))\nudp.settimeout(1)\nudp.send(b'x')\nheld(udp.recv, 512)"),
    python("reach an abstract socket", "held(socket.socket(socket.AF_UNIX).connect, '\\0{marker}')"),
    python("find any Unix socket of the host", "names = [line.split()[-1] for line in open('/proc/net/unix').read().splitlines()[1:] if '/' in line or '@' in line]\nprint('ESCAPED' if names else 'HELD', names)"),
    python("take the way from who passes it on", "held(lambda: socket.create_server(('127.0.0.1', {way})))"),
    http("have the gateway fetch from the host", "refused(b'GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n')"),
    http("have the gateway fetch the metadata", "refused(b'GET http://169.254.169.254/latest/ HTTP/1.1\\r\\nHost: 169.254.169.254\\r\\n\\r\\n')"),
    http("have the gateway connect", "refused(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\nhello')"),
    http("name another host", "refused(b'GET /v1/models HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nX-Forwarded-Host: 127.0.0.1:{port}\\r\\n\\r\\n')"),
    http("ask for a route of the agent server", "for path in (b'/jobs', b'/status', b'/metrics', b'/livez', b'/openapi.json', b'/process', b'/start', b'/inference/v1/generate', b'/../status', b'//status', b'/v1/models/../../status'):\n    refused(b'GET ' + path + b' HTTP/1.1\\r\\n\\r\\n')\n    refused(b'POST ' + path + b' HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n[]')"),
    http("change to another protocol", "refused(b'GET /v1/models HTTP/1.1\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c\\r\\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\\r\\n\\r\\n')"),
    http("hide a request behind a length", "refused(b'POST /v1/messages HTTP/1.1\\r\\nContent-Length: 2\\r\\nContent-Length: 40\\r\\n\\r\\n{}GET /v1/models HTTP/1.1\\r\\n\\r\\n')"),
    http("hide a request behind a coding", "refused(b'POST /v1/messages HTTP/1.1\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /v1/models HTTP/1.1\\r\\n\\r\\n')"),
    http("hide a request behind a body that a GET has", "refused(b'GET /v1/models HTTP/1.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\nGET /v1/models HTTP/1.1\\r\\n\\r\\n')"),
    http("hide a request in a header", "refused(b'GET /v1/models HTTP/1.1\\r\\nAuthorization: Bearer a\\n\\nGET /v1/models HTTP/1.1\\r\\n\\r\\n', 2)"),
    http("guess a key", "for key in (b'', b'sk-', b'*', b'null', b'policy', b'sk-' + b'A' * 43, b'\\xff'):\n    refused(b'GET /v1/models HTTP/1.1\\r\\nAuthorization: Bearer ' + key + b'\\r\\nx-api-key: ' + key + b'\\r\\n\\r\\n')"),
)
# fmt: on
