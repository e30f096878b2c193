"""TLS of a service: its certificate, as it is on disk now, and the begin of its callers' sessions.

- A certificate that is replaced is used by the connections that come a second later. Who looks at
  the files is a thread: they may be on a disk of the network, which nobody is to wait for.
- A caller that says nothing has no session yet: until the first byte of a handshake is there, it
  costs what it costs without TLS.
"""

import contextlib
import socket
import ssl
import stat
import threading
import time
from pathlib import Path

import msgspec
import structlog

from rollyard.errors import LaunchError
from serving.callers import TLSCaller

HANDSHAKE = b"\x16"
"""First byte of every handshake, with which no request begins."""
LOOK_SECONDS = 1.0
"""Interval between looks at the files, while connections come."""
_MAX_FAILURES_TOLD = 256
"""Failed handshakes that are logged, each peer and reason once: anyone can cause more."""

log = structlog.get_logger()


class NoHandshake(Exception):
    """The caller does not speak TLS."""


class TLSFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate of a service, with those that lead from it to its CA, and its key: two files
    in PEM, or one with both. Raises `LaunchError` if they cannot be used."""

    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        self.load()

    def load(self) -> ssl.SSLContext:
        """What a handshake needs, from the files as they are now. Raises `LaunchError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.num_tickets = 0  # none of our callers resumes a session
        context.set_alpn_protocols(["http/1.1"])
        context.sslsocket_class = TLSCaller
        try:
            if stat.S_IMODE(self.key.stat().st_mode) & 0o007:
                raise LaunchError(
                    f"everyone on this machine may read the key {self.key}",
                    fix=f"make a new one, and `chmod 600 {self.key}`",
                )
            context.load_cert_chain(self.certificate, self.key, password=self._refuse_password)
        except OSError as error:  # `ssl.SSLError` is one, too
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            raise LaunchError(
                f"cannot serve the certificate {self.certificate} with the key {self.key}: "
                f"{reason}",
                fix="give a certificate and its own key, both in PEM; `rollyard tls init` makes "
                "some",
            ) from error
        return context

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """What changes when a file is replaced."""
        found = []
        for path in (self.certificate, self.key):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _refuse_password(self) -> str:
        raise LaunchError(
            f"the key {self.key} has a password, and nobody can be asked for it",
            fix="give a key without one, which its owner alone may read",
        )


class ServerTLS:
    """The TLS of one address. Used by one thread alone, beside the one that looks at the files."""

    def __init__(self, files: TLSFiles) -> None:
        self._files = files
        self._stamp = files.stamp()
        self._context = files.load()
        self._looked_at = time.monotonic()
        self._looking: threading.Thread | None = None
        self._told: set[tuple[str, str]] = set()

    def context(self) -> ssl.SSLContext:
        """What the next handshake needs, as far as it is known now."""
        now = time.monotonic()
        looks = self._looking is not None and self._looking.is_alive()
        if now - self._looked_at >= LOOK_SECONDS and not looks:
            self._looked_at = now
            self._looking = threading.Thread(target=self._look, name="certificate", daemon=True)
            self._looking.start()
        return self._context

    def _look(self) -> None:
        """Use the files as they are now. Such as cannot be used, like a certificate whose key is
        still the old one, change nothing."""
        stamp = self._files.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._files.load()
                log.info("certificate_replaced", certificate=str(self._files.certificate))
            except LaunchError as error:
                log.warning("certificate_not_replaced", reason=error.message, fix=error.fix)

    def tell_failure(self, peer: str, error: OSError) -> None:
        """Log why a caller's handshake failed, unless it just left; a port scan does not fill the
        log."""
        if isinstance(error, ssl.SSLEOFError | ConnectionError):
            return
        reason = str(getattr(error, "reason", None) or error)
        if (peer, reason) not in self._told and len(self._told) < _MAX_FAILURES_TOLD:
            self._told.add((peer, reason))
            log.warning("no_handshake", peer=peer, reason=reason)


def begins_handshake(caller: socket.socket) -> bool:
    """Whether what has come from a caller begins a handshake; it stays where it is. Raises
    `OSError`."""
    first = caller.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError("the caller has closed")
    return first == HANDSHAKE


def begin_session(caller: socket.socket, tls: ServerTLS) -> TLSCaller:
    """The caller's socket with a session, once something has come. Raises `NoHandshake`, and
    `OSError`."""
    if not begins_handshake(caller):
        raise NoHandshake
    session = tls.context().wrap_socket(caller, server_side=True, do_handshake_on_connect=False)
    assert isinstance(session, TLSCaller)
    return session
