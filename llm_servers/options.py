"""The command-line options of every service that stands before LLM servers of its node."""

import argparse

from rollyard.errors import LaunchError
from rollyard.messages import check_url
from serving.options import add_access_options, add_log_option


def add_service_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, required=True)
    add_access_options(parser)
    add_log_option(parser)
    parser.add_argument(
        "--server", action="append", required=True, help="URL of an LLM server; repeat for more"
    )


def servers_of(options: argparse.Namespace) -> tuple[str, ...]:
    """URLs of the LLM servers. Raises `LaunchError` and `InvalidMessage`."""
    servers = tuple(url.rstrip("/") for url in options.server)
    for url in servers:
        check_url(url)
    if len(set(servers)) < len(servers):
        raise LaunchError(f"an LLM server is given twice: {' '.join(servers)}")
    return servers
