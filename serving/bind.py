"""Where a service listens."""

import contextlib
import socket
from collections.abc import Iterable
from ipaddress import ip_address

import msgspec
import structlog

from rollyard.errors import LaunchError
from serving.every_address import EVERY_ADDRESS
from serving.tls import TLSFiles

log = structlog.get_logger()


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """Address on which a service listens: on loopback, or anywhere if callers must show a token.
    Raises `LaunchError` for another one, unless it is `insecure`."""

    host: str = "127.0.0.1"
    port: int
    threads: int = 256
    """Maximum number of threads for workers, and again for other callers."""
    protected: bool = False
    """True if callers must show a token."""
    insecure: bool = False
    """True to listen beyond loopback without tokens."""
    tls: TLSFiles | None = None
    """The certificate to show; None to speak HTTP without TLS."""

    def __post_init__(self) -> None:
        if self.exposed and not self.insecure:
            raise LaunchError(
                f"refusing to listen on {self.host}: anyone who reaches it could run jobs",
                fix="give it a --token-file, or use 127.0.0.1 and an SSH tunnel",
            )
        if not 1 <= self.port <= 65535:
            raise LaunchError(f"port must be in 1..65535, got {self.port}")

    @property
    def exposed(self) -> bool:
        """Whether callers from other machines need no token."""
        return not _is_loopback(self.host) and not self.protected

    @property
    def url(self) -> str:
        """URL for callers; it has this machine's name if the service listens on every address."""
        host = socket.gethostname() if self.host in EVERY_ADDRESS else self.host
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{_bracketed(host)}:{self.port}"

    @property
    def address(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def warn_of_exposed(binds: Iterable[Bind]) -> None:
    """Log which of these anyone can reach."""
    for bind in binds:
        if bind.exposed:
            log.warning(
                "insecure",
                host=bind.host,
                port=bind.port,
                danger="anyone who reaches this port may run jobs: there are no tokens",
            )


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
