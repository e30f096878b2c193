"""Command-line options of the NeMo-Gym door."""

import argparse

from agent_server.jobs.runner import RunnerSettings
from agent_server.nemo_gym.settings import NemoGymSettings
from agent_server.prorl.options import read_door
from rollyard.errors import LaunchError
from rollyard.tokens import Tokens


def add_nemo_gym_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nemo-gym-port",
        type=int,
        metavar="PORT",
        help="open the NeMo-Gym door here (docs/doors.md; default: no door)",
    )
    parser.add_argument(
        "--nemo-gym-slots",
        type=int,
        metavar="N",
        help="how many of the slots the door may have while the orchestrator has jobs for all "
        "(default: half)",
    )
    parser.add_argument(
        "--nemo-gym-seconds",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="how long a job of the door may take, without its waits (default: %(default)g)",
    )
    parser.add_argument(
        "--nemo-gym-turns",
        type=int,
        default=30,
        metavar="N",
        help="how many turns a trajectory may have (default: %(default)s)",
    )
    parser.add_argument(
        "--nemo-gym-open",
        action="store_true",
        help="require no token at the door, as NeMo-Gym sends none; it then listens on loopback "
        "alone unless --insecure is given, too, and without TLS",
    )


def nemo_gym_of(
    flags: argparse.Namespace, runner: RunnerSettings, tokens: Tokens
) -> NemoGymSettings | None:
    """The door of an agent server with the limits of `runner`; None if it stays shut. Raises
    `LaunchError`."""
    host = flags.host if flags.insecure else "127.0.0.1"
    door = read_door(flags, runner, tokens, "NeMo-Gym", host)
    if door is None:
        return None
    if flags.nemo_gym_turns < 1:
        raise LaunchError(f"a trajectory has a turn at least, not {flags.nemo_gym_turns}")
    return NemoGymSettings(door=door, max_turns=flags.nemo_gym_turns)
