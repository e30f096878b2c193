"""`python -m llm_servers --port P --server URL ...`: the control service of one node's LLM servers.

It waits for the servers, registers with the orchestrator, and then serves weight updates and
scores.
"""

import argparse
import mmap
import os
import sys
import threading
from pathlib import Path

import structlog

from llm_servers.app import create_app
from llm_servers.node import Node, NodeSettings
from llm_servers.options import add_service_options, servers_of
from rollyard.errors import LaunchError, RollyardError
from serving import logs
from serving.gunicorn import ENDED_FOR_GOOD, Service, serve
from serving.options import bind_of, tokens_of

_MAX_REASON_BYTES = 4096

log = structlog.get_logger()


def parse_arguments(arguments: list[str]) -> NodeSettings:
    parser = argparse.ArgumentParser(prog="python -m llm_servers", description=__doc__)
    add_service_options(parser)
    parser.add_argument("--proxy", default="", help="URL of the proxy before these servers, if any")
    parser.add_argument("--model", type=Path, required=True, help="the model they serve")
    parser.add_argument("--orchestrator", required=True, help="URL")
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--ready-seconds", type=float, default=300.0)
    values = parser.parse_args(arguments)
    if values.ready_seconds <= 0:
        raise LaunchError(f"--ready-seconds must be positive, got {values.ready_seconds}")
    tokens = tokens_of(values)
    return NodeSettings(
        bind=bind_of(values, tokens),
        tokens=tokens,
        log_format=values.log_format,
        servers=servers_of(values),
        proxy=values.proxy.rstrip("/"),
        model=values.model,
        orchestrator=values.orchestrator,
        node_id=values.node_id,
        ready_seconds=values.ready_seconds,
    )


def main(arguments: list[str]) -> int:
    try:
        settings = parse_arguments(arguments)
        settings.as_message()  # a bad node id is refused before anything is waited for
    except RollyardError as error:
        print(f"cannot start the LLM control service: {error}", file=sys.stderr)
        return 2
    logs.configure("llm_servers", settings.log_format)
    # gunicorn logs after the worker's death: the worker leaves its reason in shared memory, so that
    # it is the last line on stderr.
    shared = mmap.mmap(-1, _MAX_REASON_BYTES)
    try:
        serve(lambda: _start(settings, shared), settings.bind)
    except SystemExit as ended:
        reason = shared.read().rstrip(b"\0").decode(errors="replace")
        if ended.code and reason:
            print(f"the LLM control service stopped: {reason}", file=sys.stderr, flush=True)
        raise
    return 0


def _start(settings: NodeSettings, reason: mmap.mmap) -> Service:
    node = Node(settings)

    def start_up() -> None:
        try:
            node.start_up()
        except Exception as error:
            log.exception("start_up_failed", exc_info=error)
            reason.write(" ".join(str(error).split()).encode()[:_MAX_REASON_BYTES])
            os._exit(ENDED_FOR_GOOD)

    threading.Thread(target=start_up, name="start-up", daemon=True).start()
    return Service(create_app(node, settings.tokens), node.close)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
