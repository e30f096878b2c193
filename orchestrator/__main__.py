"""`python -m orchestrator`: serve the orchestrator's API over one Redis."""

import argparse
import sys
from functools import partial

from orchestrator.addresses import Addresses
from orchestrator.app import create_app
from orchestrator.durability import check_durable
from orchestrator.queues import Queues
from orchestrator.queues.address import add_redis_options, redis_of
from orchestrator.queues.limits import RETENTION_SECONDS
from orchestrator.service import Orchestrator
from rollyard.errors import LaunchError, RollyardError
from rollyard.tokens import Tokens
from serving import logs
from serving.gunicorn import Service, serve
from serving.options import add_access_options, add_log_option, bind_of, tokens_of

MAX_RETENTION_HOURS = 10 * 365 * 24


def main() -> None:
    parser = argparse.ArgumentParser(prog="orchestrator", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    add_access_options(parser)
    add_log_option(parser)
    add_redis_options(parser)
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=30.0,
        help="an agent server silent for so long loses its jobs",
    )
    parser.add_argument(
        "--allow-address",
        action="append",
        default=[],
        metavar="NETWORK|HOST",
        help="services may listen there beside the address that they call from; repeat for more",
    )
    parser.add_argument(
        "--allow-volatile-redis",
        action="store_true",
        help="start with a Redis that may lose runs: one that evicts keys, or keeps no file",
    )
    parser.add_argument(
        "--retention-hours",
        type=float,
        default=RETENTION_SECONDS / 3600,
        help="hours for which closed runs, with their dead jobs, and the ids of prompts that are "
        "gone stay in Redis (default: %(default)g)",
    )
    options = parser.parse_args()
    logs.configure("orchestrator", options.log_format)
    try:
        tokens = tokens_of(options)
        bind = bind_of(options, tokens)
        redis = redis_of(options)
        addresses = Addresses(options.allow_address, redis_url=redis.url)
        queues = partial(
            Queues,
            redis.url,
            password=redis.password,
            prefix=redis.prefix,
            lease_seconds=options.lease_seconds,
            retention_seconds=3600 * _checked_hours(options.retention_hours),
        )
        check_durable(queues().store, volatile_allowed=options.allow_volatile_redis)
        serve(lambda: _start(queues(), tokens, addresses), bind)
    except RollyardError as error:
        print(f"orchestrator: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def _checked_hours(hours: float) -> float:
    """The hours for which records are kept. Raises `LaunchError` if callers that repeat a request
    could come after that."""
    if not 1 <= hours <= MAX_RETENTION_HOURS:
        raise LaunchError(
            f"--retention-hours must be between 1 and {MAX_RETENTION_HOURS}, got {hours:g}"
        )
    return hours


def _start(queues: Queues, tokens: Tokens, addresses: Addresses) -> Service:
    orchestrator = Orchestrator(queues, token=tokens.for_services, addresses=addresses)
    return Service(create_app(orchestrator, tokens), orchestrator.close)


if __name__ == "__main__":
    main()
