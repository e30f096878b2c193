"""`python -m llm_servers.proxy --port P --server URL ...`: the proxy of one node's LLM servers.

The servers may start later, and go and come again.
"""

import argparse
import asyncio
import signal
import sys

import msgspec

from llm_servers.options import add_service_options, servers_of
from llm_servers.proxy.app import create_proxy_app
from llm_servers.proxy.door import ProxyDoor
from llm_servers.proxy.judgement import LLMPatience
from llm_servers.proxy.proxy import LLMProxy
from rollyard.errors import RollyardError
from rollyard.tokens import Tokens
from serving import logs
from serving.bind import Bind, warn_of_exposed
from serving.descriptors import allow_connections
from serving.garbage import collect_seldom
from serving.log_format import LogFormat
from serving.options import bind_of, tokens_of


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    bind: Bind
    tokens: Tokens
    log_format: LogFormat
    servers: tuple[str, ...]
    patience: LLMPatience


def parse_arguments(arguments: list[str]) -> ProxySettings:
    """The settings in the command line. Raises `RollyardError`."""
    usual = LLMPatience()
    parser = argparse.ArgumentParser(prog="python -m llm_servers.proxy", description=__doc__)
    add_service_options(parser)
    parser.add_argument(
        "--silent-seconds",
        type=float,
        default=usual.silent_seconds,
        help="time without an answer after which a server hangs (default: %(default)g)",
    )
    parser.add_argument(
        "--stalled-seconds",
        type=float,
        default=usual.stalled_seconds,
        help="time without a token after which a server with requests hangs (default: %(default)g)",
    )
    values = parser.parse_args(arguments)
    tokens = tokens_of(values)
    return ProxySettings(
        bind=bind_of(values, tokens),
        tokens=tokens,
        log_format=values.log_format,
        servers=servers_of(values),
        patience=LLMPatience(
            silent_seconds=values.silent_seconds, stalled_seconds=values.stalled_seconds
        ),
    )


def main(arguments: list[str]) -> int:
    try:
        settings = parse_arguments(arguments)
    except RollyardError as error:
        print(f"cannot start the LLM proxy: {error}", file=sys.stderr)
        return 2
    logs.configure("llm_proxy", settings.log_format)

    try:
        asyncio.run(_serve(settings))
    except OSError as error:
        print(f"the LLM proxy stopped: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: ProxySettings) -> None:
    warn_of_exposed((settings.bind,))
    told_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_end.set)
    proxy = LLMProxy(settings.servers, settings.patience)
    app = create_proxy_app(proxy, settings.tokens)
    door = ProxyDoor(app, proxy.relay, settings.bind, allow_connections())
    proxy.start()
    collect_seldom()
    try:
        await door.serve(told_to_end)
    finally:
        proxy.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
