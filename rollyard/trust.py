"""What callers of https URLs trust, and why they refuse a server.

- Trusted are the CAs that this machine trusts anyway, those that `requests` brings along, and, for
  a deployment with a CA of its own, those in the file that `ROLLYARD_CA_FILE` names; for a
  `rollyard up` on this machine, those that it leaves for this user's programs.
- Nothing older than TLS 1.2 is spoken, and no certificate is taken unchecked.
"""

import os
import ssl
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from rollyard.errors import LaunchError
from rollyard.left_files import found_ca_file

CA_FILE_VARIABLE = "ROLLYARD_CA_FILE"

_EXPIRED, _NOT_YET = 10, 9
_WRONG_NAMES = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH"""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_TOO_OLD = ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE")


class TLSRefusal(NamedTuple):
    """Why there is no TLS with a server, and what to do about it."""

    reason: str
    fix: str


def ca_file_for(url: str) -> Path | None:
    """The file of CAs to trust for `url` beside the usual ones, if there is one."""
    named = os.environ.get(CA_FILE_VARIABLE)
    return Path(named) if named else found_ca_file(url)


def trusting(
    ca_file: Path | None, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> ssl.SSLContext:
    """What a caller checks servers by, who trusts the CAs in `ca_file` beside the usual ones.
    Raises `LaunchError` for a file that has none."""
    return _trusting(ca_file, None if ca_file is None else _stamp(ca_file), newest)


def _stamp(ca_file: Path) -> tuple[int, int]:
    """What changes when the file is replaced."""
    try:
        status = ca_file.stat()
    except OSError as error:
        raise _unreadable(ca_file, error.strerror) from error
    return status.st_mtime_ns, status.st_ino


@lru_cache(maxsize=16)  # it takes a hundredth of a second, and connections are kept by it
def _trusting(
    ca_file: Path | None, _stamp: tuple[int, int] | None, newest: ssl.TLSVersion
) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = newest
    # Which Python 3.13 sets: many an own CA is older than the rules that it checks.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise _unreadable(ca_file, error.strerror or "it holds no certificate") from error
    return context


def _unreadable(ca_file: Path, reason: str | None) -> LaunchError:
    return LaunchError(
        f"cannot read the CA certificates in {ca_file}: {reason}",
        fix=f"name a file of certificates in PEM in {CA_FILE_VARIABLE}",
    )


def refusal(error: BaseException, url: str) -> TLSRefusal | None:
    """Why there is no TLS with the server at `url`; None if that is not what the error is about."""
    for cause in _causes(error):
        if isinstance(cause, LaunchError):
            return TLSRefusal(cause.message, cause.fix)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _of_certificate(cause, url)
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return _of_handshake(cause)
    return None


def _of_certificate(error: ssl.SSLCertVerificationError, url: str) -> TLSRefusal:
    if error.verify_code in (_EXPIRED, _NOT_YET):
        how = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
        return TLSRefusal(
            f"its certificate {how}",
            "put a new one in its place, which the service uses at once, or set the clock",
        )
    if error.verify_code in _WRONG_NAMES:
        return TLSRefusal(
            f"its certificate is for another host: {error.verify_message}",
            f"use a name in {url} that is in the certificate, or make one for this name, as "
            "`rollyard tls init` does",
        )
    return TLSRefusal(
        f"its certificate is of a CA that is not trusted here ({error.verify_message})",
        f"name the file of that CA's certificate in {CA_FILE_VARIABLE}",
    )


def _of_handshake(error: ssl.SSLError) -> TLSRefusal | None:
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        return TLSRefusal("it does not speak TLS", "use a URL that begins with http://")
    if reason in _TOO_OLD:
        return TLSRefusal("it speaks no version of TLS from 1.2 on", "let it speak a newer one")
    return TLSRefusal(f"TLS failed ({reason})", "its log says why")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was made of: libraries wrap it in several ways."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and each not in seen:
            seen.append(each)
            yield each
            waiting += [*each.args, getattr(each, "reason", None), each.__cause__, each.__context__]
