"""`python -m reward_service`: serve the installed graders over one Redis."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.registry import graders
from orchestrator.queues.address import redis_of
from reward_service.app import create_app
from reward_service.pool import host_of
from reward_service.scaling import ScalingSettings
from reward_service.service import RewardService, RewardServiceSettings
from rollyard.errors import RollyardError
from rollyard.tokens import Tokens
from serving import logs
from serving.bind import Bind
from serving.gunicorn import Service, serve
from serving.log_format import LogFormat
from serving.options import add_access_options, add_log_option, bind_of, tokens_of


class RewardServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    bind: Bind
    tokens: Tokens
    log_format: LogFormat
    service: RewardServiceSettings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reward_service", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    add_access_options(parser)
    add_log_option(parser)
    parser.add_argument("--redis-url", required=True, help="redis://[user@]host:port[/database]")
    parser.add_argument(
        "--redis-password-file", type=Path, help="the password of the URL's user, mode 0600"
    )
    parser.set_defaults(redis_prefix="rq:")  # which is RQ's, and cannot be changed
    whole = (
        ("--workers", ScalingSettings().most_workers, "workers at most; there are none when idle"),
        ("--idle-seconds", ScalingSettings().idle_seconds, "time until an idle worker leaves"),
        ("--task-seconds", 20, "time for grading one task"),
        ("--answer-seconds", 60, "time for a task with its wait for a worker"),
        ("--most-tasks", 1024, "tasks that may wait and run; more are told to come later"),
        ("--memory-mib", ProcessLimits().data_bytes >> 20, "memory of each process"),
    )
    for name, default, meaning in whole:
        parser.add_argument(
            name, type=int, default=default, help=f"{meaning} (default: %(default)s)"
        )
    return parser


def parse(arguments: Sequence[str]) -> RewardServiceOptions:
    """The options in the command line. Raises `RollyardError`; exits for --help and bad flags."""
    flags = _parser().parse_args(arguments)
    tokens = tokens_of(flags)
    return RewardServiceOptions(
        bind=bind_of(flags, tokens),
        tokens=tokens,
        log_format=flags.log_format,
        service=RewardServiceSettings(
            redis=redis_of(flags),
            scaling=ScalingSettings(most_workers=flags.workers, idle_seconds=flags.idle_seconds),
            limits=ProcessLimits(data_bytes=flags.memory_mib << 20),
            task_seconds=flags.task_seconds,
            answer_seconds=flags.answer_seconds,
            most_tasks=flags.most_tasks,
        ),
    )


def main() -> None:
    try:
        options = parse(sys.argv[1:])
        logs.configure("reward_service", options.log_format)
        points = graders()
        host_of(points, options.service.limits).close()  # says what cannot be imported, and stops
    except RollyardError as error:
        print(f"reward_service: {error}", file=sys.stderr)
        sys.exit(2)

    def start() -> Service:
        service = RewardService(points, options.service)
        return Service(create_app(service, options.tokens), service.close)

    serve(start, options.bind)


if __name__ == "__main__":
    main()
