"""Command-line options of a deployment's TLS, for every command that starts one."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from launch.deployment_tls import DeploymentTLS, chosen_tls
from launch.engine_options import built

MadeTLS = Annotated[
    bool,
    typer.Option(
        "--tls", help="Let services speak TLS, with a certificate that is made in the directory."
    ),
]
TLSCert = Annotated[
    Path | None,
    typer.Option(
        help="Let services speak TLS with this certificate and those that lead to its CA, in PEM.",
        show_default=False,
    ),
]
TLSKey = Annotated[Path | None, typer.Option(help="The certificate's key.", show_default=False)]
TLSCA = Annotated[
    Path | None,
    typer.Option(
        help="The certificate's CA, if this machine does not trust it anyway.", show_default=False
    ),
]


class TLSChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say."""

    made: bool
    certificate: Path | None
    key: Path | None
    ca_file: Path | None

    def of(self, directory: Path) -> DeploymentTLS | None:
        """The TLS of a deployment in `directory`; None if it has none. Raises `LaunchError`."""
        return chosen_tls(
            directory,
            made=self.made,
            certificate=self.certificate,
            key=self.key,
            ca_file=self.ca_file,
        )


def _choice(
    *,
    tls: MadeTLS = False,
    tls_cert: TLSCert = None,
    tls_key: TLSKey = None,
    tls_ca: TLSCA = None,
) -> TLSChoice:
    return TLSChoice(made=tls, certificate=tls_cert, key=tls_key, ca_file=tls_ca)


with_tls = built("tls", _choice)
"""The command with the options of TLS in the place of its parameter `tls`."""
