"""Where the certificate of a deployment is, with its key and its CA."""

from pathlib import Path

import msgspec

CERTIFICATE_DAYS = 365


class CertificateFiles(msgspec.Struct, frozen=True):
    """The files in one directory."""

    directory: Path

    @property
    def ca(self) -> Path:
        """The CA's certificate, which callers trust: `ROLLYARD_CA_FILE`."""
        return self.directory / "ca.pem"

    @property
    def ca_key(self) -> Path:
        """What the next certificate is made with. No service needs it."""
        return self.directory / "ca.key"

    @property
    def certificate(self) -> Path:
        return self.directory / "server.pem"

    @property
    def key(self) -> Path:
        return self.directory / "server.key"
