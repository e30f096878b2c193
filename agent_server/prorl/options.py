"""Command-line options of the ProRL door."""

import argparse

from agent_server.jobs.runner import RunnerSettings
from agent_server.prorl.settings import DoorSettings
from rollyard.errors import LaunchError
from rollyard.tokens import NO_TOKENS, Tokens
from serving.bind import Bind
from serving.options import tls_of


def add_door_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prorl-port",
        type=int,
        metavar="PORT",
        help="open the ProRL door here (docs/doors.md); its clients expect 8006 (default: no door)",
    )
    parser.add_argument(
        "--prorl-slots",
        type=int,
        metavar="N",
        help="how many of the slots the door may have while the orchestrator has jobs for all "
        "(default: half)",
    )
    parser.add_argument(
        "--prorl-seconds",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long a job of the door may take, without its waits (default: %(default)g)",
    )
    parser.add_argument(
        "--prorl-open",
        action="store_true",
        help="require no token at the door, which then listens on loopback alone, without TLS",
    )


def door_of(
    flags: argparse.Namespace, runner: RunnerSettings, tokens: Tokens
) -> DoorSettings | None:
    """The door of an agent server with the limits of `runner`; None if it stays shut. Raises
    `LaunchError`."""
    return read_door(flags, runner, tokens, "ProRL")


def read_door(
    flags: argparse.Namespace,
    runner: RunnerSettings,
    tokens: Tokens,
    name: str,
    open_host: str = "127.0.0.1",
) -> DoorSettings | None:
    """The door whose options begin with its name, which listens on `open_host` where it requires no
    token. Raises `LaunchError`."""
    option = name.lower()
    port, slots, seconds, opened = (
        getattr(flags, f"{option}_{what}".replace("-", "_"))
        for what in ("port", "slots", "seconds", "open")
    )
    if port is None:
        return None
    share = flags.slots // 2 if slots is None else slots
    if not 1 <= share < flags.slots:
        raise LaunchError(
            f"the {name} door cannot have {share} of {flags.slots} slots: it takes one at least, "
            "and leaves one",
            fix=f"raise --slots, or give another --{option}-slots",
        )
    if port == flags.port:
        raise LaunchError(
            f"the {name} door cannot have port {flags.port}: the agent server itself has it",
            fix=f"give another --port, or another --{option}-port",
        )
    if opened:
        tokens = NO_TOKENS
    bind = Bind(
        host=open_host if opened else flags.host,
        port=port,
        protected=bool(tokens),
        insecure=flags.insecure,
        tls=None if opened else tls_of(flags),
    )
    return DoorSettings(bind=bind, tokens=tokens, runner=runner, share=share, job_seconds=seconds)
