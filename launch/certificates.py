"""A CA of one's own, and the certificate that it makes for the services of a deployment.

- The CA is made once for a directory; a certificate is made anew as often as wanted, and whoever
  trusts the CA trusts it.
- Keys are files for their owner alone. A file is replaced as a whole, the key before its
  certificate: services take the pair up once it fits.
"""

import contextlib
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from launch.certificate_files import CERTIFICATE_DAYS, CertificateFiles
from rollyard.errors import LaunchError

CA_DAYS = 3650
RENEW_DAYS = 30
"""A certificate with less time than this is due for another."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names of this machine that every certificate has."""
_CLOCKS = timedelta(minutes=10)
"""By how much clocks of other machines may be behind."""
_CA_NAME = "Rollyard CA"


def make_certificate(
    files: CertificateFiles, hosts: Iterable[str], days: float = CERTIFICATE_DAYS
) -> tuple[str, ...]:
    """Make a certificate for these hosts and for this machine itself, and before that its CA unless
    there is one. Returns all names that it is for. Raises `LaunchError`."""
    names = tuple(dict.fromkeys((*hosts, *LOCAL_HOSTS)))
    alternative = x509.SubjectAlternativeName([_name(each) for each in names])
    server_auth = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    try:
        files.directory.mkdir(parents=True, exist_ok=True)
        ca, ca_key = _ca(files)
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        builder = (
            _builder("Rollyard", key, min(_after(days), ca.not_valid_after_utc))
            .issuer_name(ca.subject)
            .add_extension(alternative, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(server_auth, critical=False)
            .add_extension(issuer, critical=False)
        )
        _write_key(files.key, key)
        _write_certificate(files.certificate, builder.sign(ca_key, hashes.SHA256()))
    except OSError as error:
        raise LaunchError(f"cannot write to {files.directory}: {error.strerror}") from error
    return names


def hosts_of(files: CertificateFiles) -> tuple[str, ...]:
    """The names that the certificate is for; none before there is one. Raises `LaunchError`."""
    if not files.certificate.exists():
        return ()
    try:
        made = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise LaunchError(
            f"cannot read the hosts of {files.certificate}: {error}", fix="name them with --host"
        ) from error
    return tuple(str(name.value) for name in found)


def is_due(files: CertificateFiles, hosts: Iterable[str]) -> bool:
    """Whether another certificate is needed: there is none, it is for other hosts, or its time is
    nearly over."""
    with contextlib.suppress(OSError, ValueError, x509.ExtensionNotFound, InvalidSignature):
        ca = x509.load_pem_x509_certificate(files.ca.read_bytes())
        made = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        made.verify_directly_issued_by(ca)
        found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        fits = all(_name(host) in found for host in (*hosts, *LOCAL_HOSTS))
        left = made.not_valid_after_utc - datetime.now(UTC)
        return not (fits and files.key.exists() and left > timedelta(days=RENEW_DAYS))
    return True


def _ca(files: CertificateFiles) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The directory's CA. Raises `LaunchError` for one that cannot make certificates."""
    if files.ca.exists():
        return _read_ca(files)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_CA_NAME, key, _after(CA_DAYS))
        .issuer_name(_subject(_CA_NAME))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    ca = builder.sign(key, hashes.SHA256())
    _write_key(files.ca_key, key)
    _write_certificate(files.ca, ca)
    return ca, key


def _read_ca(files: CertificateFiles) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        ca = x509.load_pem_x509_certificate(files.ca.read_bytes())
        key = serialization.load_pem_private_key(files.ca_key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LaunchError(
            f"the CA in {files.directory} makes no more certificates: {reason}",
            fix=f"put its key back as {files.ca_key}, or make a new CA in another directory",
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
        raise LaunchError(
            f"{files.ca_key} is not the key of {files.ca}",
            fix="put the right one back, or make a new CA in another directory",
        )
    return ca, key


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode("ascii"))
    except ValueError as error:
        raise LaunchError(
            f"{host!r} is neither an address nor the name of a host",
            fix="name it as it stands in URLs",
        ) from error


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    """What every certificate of ours has."""
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _CLOCKS)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _after(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def _usage(*, signs: bool) -> x509.KeyUsage:
    """What a key is for: a CA's signs certificates, a server's handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, text, 0o600)


def _write_certificate(path: Path, made: x509.Certificate) -> None:
    _write(path, made.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, text: bytes, mode: int) -> None:
    """Write a file as a whole; from its begin on it has this mode."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(text)
    new.replace(path)
