"""The TLS of a deployment: a certificate of the operator's, or one that is made for it.

- A certificate that is made has a CA of its own, in the directory of the deployment.
- One that callers would refuse is refused before anything starts, as they would.
- Processes of the deployment learn from the environment what they trust.
"""

import os
import ssl
from pathlib import Path

import msgspec

from launch.certificate_files import CertificateFiles
from rollyard.errors import LaunchError
from rollyard.trust import CA_FILE_VARIABLE, refusal, trusting
from serving.tls import TLSFiles

DIRECTORY = "tls"
_TRUSTED = "trusted.pem"
_FLIGHTS = 8
"""More than a handshake has."""


class DeploymentTLS(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate of all services of a deployment."""

    certificate: Path
    key: Path
    ca_file: Path | None = None
    """The CAs to trust beside the usual ones."""
    made_in: Path | None = None
    """The directory in which it is made when needed; None if it is the operator's."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a service."""
        return ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))


def made_tls(directory: Path) -> DeploymentTLS:
    """The certificate that is made for a deployment in `directory`."""
    files = CertificateFiles(directory / DIRECTORY)
    return DeploymentTLS(
        certificate=files.certificate, key=files.key, ca_file=files.ca, made_in=files.directory
    )


def chosen_tls(
    directory: Path, *, made: bool, certificate: Path | None, key: Path | None, ca_file: Path | None
) -> DeploymentTLS | None:
    """What the options of a command choose; None if it is to be without TLS. Raises
    `LaunchError`."""
    if certificate is None and key is None:
        if ca_file is not None:
            raise LaunchError(
                "a CA is given, and no certificate of it", fix="give --tls-cert and --tls-key, too"
            )
        return made_tls(directory) if made else None
    if certificate is None or key is None:
        raise LaunchError(
            "TLS takes a certificate and its key", fix="give --tls-cert and --tls-key"
        )
    return DeploymentTLS(
        certificate=certificate.resolve(),
        key=key.resolve(),
        ca_file=None if ca_file is None else ca_file.resolve(),
    )


def prepare_tls(tls: DeploymentTLS, hosts: tuple[str, ...]) -> None:
    """Make the certificate if it is to be made, check it for these hosts, and let this process and
    those that it starts trust it. Raises `LaunchError`."""
    if tls.made_in is not None:
        _make(CertificateFiles(tls.made_in), hosts)
    for host in hosts:
        check_certificate(tls, host)
    trust(tls)


def trust(tls: DeploymentTLS) -> None:
    """Let this process, and those that it starts, trust the CAs of the certificate. Raises
    `LaunchError`."""
    if tls.ca_file is not None:
        os.environ[CA_FILE_VARIABLE] = str(_trusted(tls.ca_file))


def check_certificate(tls: DeploymentTLS, host: str) -> None:
    """Raise `LaunchError` for a certificate that callers of `host` would refuse."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    named = os.environ.get(CA_FILE_VARIABLE)
    context = trusting(tls.ca_file or (Path(named) if named else None))
    caller = context.wrap_bio(to_caller, to_server, server_hostname=host)
    files = TLSFiles(certificate=tls.certificate, key=tls.key)
    server = files.load().wrap_bio(to_server, to_caller, server_side=True)
    for side in (caller, server) * _FLIGHTS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            refused = refusal(error, f"https://{host}")
            raise LaunchError(
                f"callers would refuse {tls.certificate} at {host}: "
                f"{refused.reason if refused else error}",
                fix="give the CA's certificate with --tls-ca, or another --host, or `rollyard tls "
                "init` a certificate for it",
            ) from error


def _make(files: CertificateFiles, hosts: tuple[str, ...]) -> None:
    from launch.certificates import is_due, make_certificate  # late: most deployments make none

    if is_due(files, hosts):
        make_certificate(files, hosts)


def _trusted(ca_file: Path) -> Path:
    """The file of CAs for the processes of the deployment: `ca_file`, with those that were trusted
    before, which what they call elsewhere may need."""
    before = os.environ.get(CA_FILE_VARIABLE)
    both = ca_file.with_name(_TRUSTED)
    if not before or Path(before).resolve() in (ca_file.resolve(), both.resolve()):
        return ca_file
    try:
        both.write_bytes(ca_file.read_bytes() + b"\n" + Path(before).read_bytes())
    except OSError as error:
        raise LaunchError(
            f"cannot join the CAs of {CA_FILE_VARIABLE}={before} with those of {ca_file}: "
            f"{error.strerror}"
        ) from error
    return both
