"""Addresses that a service may register, since the orchestrator sends its token there.

- Allowed are the address that the service calls from, all of this machine if it calls from this
  machine, and those that the operator named.
- Link-local addresses are never allowed: clouds serve credentials there to every caller.
- A host is resolved once, when it registers, and its address is kept, since a name may later
  resolve to another one. With https the name is kept, as the certificate vouches for it.
"""

import contextlib
import socket
from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

from rollyard.errors import Forbidden, LaunchError, Unavailable

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DEFAULT_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}


class Addresses:
    """The allowed addresses. `named` are networks and hosts that the operator added to the usual
    ones; Redis's own address at `redis_url` is never allowed."""

    def __init__(self, named: Iterable[str] = (), *, redis_url: str = "") -> None:
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for name in named:
            self._allow(name)
        self._redis = set(_resolved(redis_url)) if urlsplit(redis_url).hostname else set()

    def _allow(self, name: str) -> None:
        try:
            self._networks.append(ip_network(name))
        except ValueError as error:
            if "/" in name or name.replace(".", "").isdigit() or ":" in name:
                raise LaunchError(
                    f"{name!r} is neither a network nor a host: {error}",
                    fix="write a network as 10.1.0.0/16, or name a host",
                ) from error
            self._hosts.add(name.lower())

    def checked(self, url: str, caller: str) -> str:
        """The URL to keep for a service that registers `url` from the address `caller`.

        Raises `Forbidden` if it is not allowed, and `Unavailable` if its host has no address.
        """
        parts, found = urlsplit(url), _resolved(url)
        if not found:
            raise Unavailable(
                f"the host of {url} has no address here",
                fix="register under an address, or make the name known on this machine",
            )
        named = (parts.hostname or "") in self._hosts
        for address, port in found:
            if self._may_be_called(address, port) and (named or self._is_usual(address, caller)):
                host = f"[{address}]" if address.version == 6 else str(address)
                return url if parts.scheme == "https" else f"http://{host}:{port}{parts.path}"
        raise Forbidden(
            f"no service may register {url} from {caller}: the orchestrator would show its token "
            f"at {found[0][0]}",
            fix="let it listen on the address that it calls from (--host), or start the "
            f"orchestrator with --allow-address {found[0][0]} if that is right",
        )

    def _may_be_called(self, address: Address, port: int) -> bool:
        odd = address.is_link_local or address.is_multicast or address.is_unspecified
        return not odd and (address, port) not in self._redis

    def _is_usual(self, address: Address, caller: str) -> bool:
        if any(address in network for network in self._networks):
            return True
        calls_from = _plain(ip_address(caller.partition("%")[0])) if caller else None
        if calls_from is None:
            return False
        return address == calls_from or (_is_ours(address) and _is_ours(calls_from))


def _resolved(url: str) -> Sequence[tuple[Address, int]]:
    """(address, port) pairs of the URL's host; empty if it has none."""
    parts = urlsplit(url)
    with contextlib.suppress(OSError, ValueError):  # ValueError: a name too long, a port too high
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        return [(_plain(ip_address(str(end[0]).partition("%")[0])), port) for *_, end in found]
    return ()


def _plain(address: Address) -> Address:
    """The address, with an IPv4-mapped IPv6 address as plain IPv4."""
    return getattr(address, "ipv4_mapped", None) or address


def _is_ours(address: Address) -> bool:
    """Whether it is an address of this machine: only such a one can be bound."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family) as trial:
        trial.bind((str(address), 0))
        return True
    return False
