"""`python -m orchestrator`: serve the orchestrator's API over one Redis."""

import argparse
import sys

from orchestrator.app import create_app
from orchestrator.queues.redis_queues import RedisQueues
from orchestrator.service import Orchestrator
from rollyard.errors import RollyardError
from serving import logs
from serving.gunicorn import Bind, Service, serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="orchestrator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--redis-url", required=True)
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=30.0,
        help="an agent server silent for so long loses its jobs",
    )
    options = parser.parse_args()
    logs.configure("orchestrator")
    try:
        serve(
            lambda: _start(options.redis_url, options.lease_seconds),
            Bind(host=options.host, port=options.port),
        )
    except RollyardError as error:
        print(f"orchestrator: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def _start(redis_url: str, lease_seconds: float) -> Service:
    orchestrator = Orchestrator(RedisQueues(redis_url, lease_seconds=lease_seconds))
    return Service(create_app(orchestrator), orchestrator.close)


if __name__ == "__main__":
    main()
