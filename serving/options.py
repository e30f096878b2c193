"""Command-line options of every service: its address, its tokens, and its log."""

import argparse
from pathlib import Path

from rollyard.errors import LaunchError
from rollyard.tokens import (
    TOKEN_FILE_VARIABLE,
    TOKENS_VARIABLE,
    Tokens,
    environment_tokens,
    read_tokens,
)
from serving.bind import Bind
from serving.log_format import LogFormat
from serving.tls import TLSFiles


def add_log_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-format",
        type=LogFormat,
        choices=list(LogFormat),
        default=LogFormat.TEXT,
        help="the format of log lines (default: %(default)s)",
    )


def add_access_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="file of bearer tokens, a role and a token on each line, mode 0600 "
        f"(default: ${TOKEN_FILE_VARIABLE}, or the lines themselves in ${TOKENS_VARIABLE})",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond loopback without tokens: whoever reaches the port may run jobs",
    )
    parser.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="serve HTTPS with this certificate, and those that lead from it to its CA, in PEM",
    )
    parser.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="the certificate's key, without a password"
    )


def tokens_of(options: argparse.Namespace) -> Tokens:
    """The service's tokens, empty if none are given. Raises `LaunchError` for an unusable file."""
    path: Path | None = options.token_file
    return environment_tokens() if path is None else read_tokens(path)


def bind_of(options: argparse.Namespace, tokens: Tokens) -> Bind:
    """Address on which the service listens. Raises `LaunchError` for one that is not safe."""
    return Bind(
        host=options.host,
        port=options.port,
        protected=bool(tokens),
        insecure=options.insecure,
        tls=tls_of(options),
    )


def tls_of(options: argparse.Namespace) -> TLSFiles | None:
    """The files of the service's TLS; None if it has none. Raises `LaunchError`."""
    certificate, key = options.tls_cert, options.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise LaunchError(
            "TLS takes a certificate and its key", fix="give --tls-cert and --tls-key"
        )
    return TLSFiles(certificate=certificate, key=key)
