"""`rollyard tls init`: a certificate for the services of a deployment, and the CA to trust."""

from pathlib import Path
from typing import Annotated

import typer

from launch.certificate_files import CERTIFICATE_DAYS, CertificateFiles
from launch.output import Json, show
from rollyard.trust import CA_FILE_VARIABLE

tls_commands = typer.Typer(help="Certificates for services that speak TLS.", no_args_is_help=True)

Into = Annotated[Path, typer.Argument(help="Directory for the certificate, its key, and the CA.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Name or address of a machine in the URLs of its services, beside localhost; may be "
        "repeated.  [default: those of the certificate that there is]",
        show_default=False,
    ),
]
Days = Annotated[
    int, typer.Option(help="Days for which the certificate is valid.", min=1, max=3650)
]


@tls_commands.callback()
def tls() -> None:
    """Certificates for services that speak TLS."""


@tls_commands.command("init")
def tls_init_command(
    directory: Into, host: Hosts = None, days: Days = CERTIFICATE_DAYS, json: Json = False
) -> None:
    """Make a certificate, and its CA if the directory has none; done again, it renews the
    certificate, which running services take up by themselves."""
    from launch.certificates import hosts_of, make_certificate  # late: they take long

    files = CertificateFiles(directory.resolve())
    names = make_certificate(files, host or hosts_of(files), days)
    said = [
        f"{files.certificate} is valid for {days} days, for {', '.join(names)}",
        f"services: --tls-cert {files.certificate} --tls-key {files.key}",
        f"callers: export {CA_FILE_VARIABLE}={files.ca}",
        f"{files.ca_key} is needed for the next certificate alone",
    ]
    made = {
        "certificate": str(files.certificate),
        "key": str(files.key),
        "ca_file": str(files.ca),
        "hosts": names,
    }
    show(made, said, json=json)
