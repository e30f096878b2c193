"""The address of the Redis to use: its URL, user, password and key prefix.

The password is in no command line and no log.
"""

import argparse
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from rollyard.errors import LaunchError
from rollyard.tokens import read_secret
from rollyard.trust import ca_file_for

PREFIX = "rollyard:"


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    """URL, with the name of the ACL user if there is one: redis://user@host:6379/0. One that begins
    with rediss:// is called with TLS, and may name the CAs to trust: ?ssl_ca_certs=FILE."""
    password: str = ""
    prefix: str = PREFIX

    def __repr__(self) -> str:
        return f"RedisAddress({self.url}, {self.prefix})"


def add_redis_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--redis-url",
        required=True,
        help="redis://[user@]host:port[/database]; rediss:// calls it with TLS",
    )
    parser.add_argument(
        "--redis-password-file",
        type=Path,
        help="the password of the URL's user, mode 0600",
    )
    parser.add_argument("--redis-prefix", default=PREFIX, help="of every key (default %(default)s)")


def redis_of(options: argparse.Namespace) -> RedisAddress:
    """The address that the options name. Raises `LaunchError`, which never holds a password."""
    url, prefix = options.redis_url, options.redis_prefix
    parts = urlsplit(url)
    if parts.password is not None:
        raise LaunchError(
            "the password in --redis-url can be seen by every user of this machine",
            fix="put it in a file of mode 0600 and give that as --redis-password-file",
        )
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise LaunchError(f"{url!r} is not a Redis URL", fix="write it as redis://host:port")
    if not prefix or any(character in prefix for character in "*?[]\\ "):
        raise LaunchError(
            f"{prefix!r} is no key prefix", fix="use letters, digits, dots, dashes and colons"
        )
    path = options.redis_password_file
    password = read_secret(path).strip() if path is not None else ""
    return RedisAddress(url=_with_cas(url), password=password, prefix=prefix)


def _with_cas(url: str) -> str:
    """The URL with the file of CAs by which every other server is checked, too, unless it names
    one itself: all that call this Redis learn it from the URL."""
    parts = urlsplit(url)
    ca_file = ca_file_for(url) if parts.scheme == "rediss" else None
    if ca_file is None or "ssl_ca_certs" in parse_qs(parts.query):
        return url
    added = urlencode({"ssl_ca_certs": str(ca_file.resolve())})
    return parts._replace(query=f"{parts.query}&{added}".lstrip("&")).geturl()
