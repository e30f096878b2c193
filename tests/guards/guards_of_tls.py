"""The guards that stand where services speak TLS, and where callers check it."""

from tests.guards.guard import Guard

SERVICE = "tests/serving/test_tls.py"
PROXY = "tests/llm_servers/test_proxy_tls.py"
TRUST = "tests/rollyard/test_trust.py"

GUARDS_OF_TLS = (
    Guard(
        "a key that everyone may read is not served with TLS",
        "serving/tls.py",
        "            if stat.S_IMODE(self.key.stat().st_mode) & 0o007:\n",
        "            if False:\n",
        SERVICE,
    ),
    Guard(
        "a renewed certificate is used by TLS without a restart",
        "serving/tls.py",
        "        if stamp != self._stamp:\n",
        "        if False:\n",
        SERVICE,
    ),
    Guard(
        "a request without TLS is told how to call",
        "serving/tls.py",
        "    if not begins_handshake(caller):\n        raise NoHandshake\n",
        "",
        SERVICE,
    ),
    Guard(
        "what is left of a record of TLS is read",
        "serving/worker.py",
        "            self.method_queue.defer(self._readable, connection, connection.sock)\n",
        "            pass\n",
        SERVICE,
    ),
    Guard(
        "a handshake of TLS with the proxy ends in time",
        "llm_servers/proxy/entrance.py",
        "                ssl_handshake_timeout=HEAD_SECONDS,\n",
        "                ssl_handshake_timeout=1e6,\n",
        PROXY,
    ),
    Guard(
        "callers with TLS trust the CAs that are named",
        "rollyard/trust.py",
        "            context.load_verify_locations(ca_file)\n",
        "            pass\n",
        TRUST,
    ),
    Guard(
        "what callers of TLS trust is looked up at each call",
        "rollyard/trust.py",
        "None if ca_file is None else _stamp(ca_file)",
        "None",
        TRUST,
    ),
    Guard(
        "a CA that was left by another user is no CA for TLS",
        "rollyard/left_files.py",
        "    return left if _is_ours(left.parent) and left.exists() else None\n",
        "    return left if left.exists() else None\n",
        "tests/access/test_tokens.py",
    ),
)
