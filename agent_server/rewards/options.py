"""Command-line options of a server that has answers graded."""

import argparse
from pathlib import Path

from agent_server.rewards.local import LocalRewardSettings
from agent_server.rewards.remote import RemoteRewardSettings
from rollyard.tokens import read_tokens


def add_reward_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reward-url",
        metavar="URL",
        help="a service that grades, such as `rollyard rewards` or a serverless function "
        "(default: answers are graded here)",
    )
    parser.add_argument(
        "--reward-token-file",
        type=Path,
        help="the token file of that service, to which no other token is ever sent",
    )
    parser.add_argument(
        "--reward-seconds",
        type=float,
        default=LocalRewardSettings().task_seconds,
        help="the time for grading one answer (default: %(default)s)",
    )


def reward_service_of(options: argparse.Namespace) -> RemoteRewardSettings | None:
    """The reward service that the options name, if they name one. Raises `LaunchError` for an
    unusable file and `InvalidMessage` for another bad value."""
    if options.reward_url is None:
        return None
    path: Path | None = options.reward_token_file
    return RemoteRewardSettings(
        url=options.reward_url,
        token="" if path is None else read_tokens(path).for_services,
        task_seconds=options.reward_seconds,
    )
