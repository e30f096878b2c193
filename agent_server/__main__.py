"""`python -m agent_server`: start one agent server from its command line."""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.jobs.runner import RunnerSettings
from agent_server.jobs.slots import jobs_ahead
from agent_server.nemo_gym.options import add_nemo_gym_options, nemo_gym_of
from agent_server.presence import PresenceSettings
from agent_server.prorl.options import add_door_options, door_of
from agent_server.rewards.local import LocalRewardSettings
from agent_server.rewards.options import add_reward_options, reward_service_of
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.settings import BUBBLEWRAP, PROVIDERS, SandboxSettings
from agent_server.sandbox.totals import SandboxTotals
from agent_server.service import load, start
from agent_server.settings import AgentServerSettings
from rollyard.errors import RollyardError
from rollyard.tokens import make_password_file, read_secret
from serving import logs
from serving.gunicorn import serve
from serving.options import add_access_options, add_log_option, bind_of, tokens_of


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with one sentence, without the usage that argparse puts before it."""
        self.exit(2, f"agent_server: {message}; see --help\n")


def _options() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m agent_server", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8006)
    add_access_options(parser)
    add_log_option(parser)
    parser.add_argument("--server-id", required=True, help="unique in the deployment")
    parser.add_argument("--orchestrator", required=True, metavar="URL")
    parser.add_argument(
        "--identity-file",
        type=Path,
        help="what proves that the server id is its own, made at the first start: with it a server "
        "that was killed takes its id back at once, without it after a lease",
    )
    _add_model_options(parser)
    _add_slot_options(parser)
    _add_environment_options(parser)
    add_reward_options(parser)
    add_door_options(parser)
    add_nemo_gym_options(parser)
    _add_sandbox_options(parser)
    _add_sandbox_limits(parser)
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--llm-server", metavar="URL", action="append", default=[], help="repeat for more"
    )
    parser.add_argument(
        "--llm-proxy",
        metavar="URL[,SERVERS]",
        action="append",
        default=[],
        type=_proxy,
        help="a proxy of ours, which is shown the token, and for how many LLM servers it counts "
        "(default: 1); repeat for more",
    )
    parser.add_argument(
        "--llm-announced",
        action="store_true",
        help="use what LLM nodes and trainers announce to the orchestrator, too, while it lasts",
    )
    parser.add_argument("--model", required=True, type=Path, help="the served model's directory")
    parser.add_argument(
        "--stop-token",
        action="append",
        default=[],
        metavar="TEXT",
        help="a token that ends a response, beside those that the model's files name; repeat",
    )
    parser.add_argument(
        "--tool-calls",
        default="",
        metavar="NAME",
        help="the format in which the model writes tool calls (default: by its chat template)",
    )
    parser.add_argument("--ready-seconds", type=float, default=300.0)


def _add_slot_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slots", type=int, default=16, help="jobs at once")
    parser.add_argument(
        "--ahead",
        type=int,
        help="jobs made ready beyond the slots while many wait (default: a sixteenth of the slots)",
    )
    usual = RunnerSettings()
    parser.add_argument(
        "--init-at-once",
        type=int,
        default=usual.init_at_once,
        help="jobs in INIT at once (default: %(default)s)",
    )
    parser.add_argument(
        "--eval-at-once",
        type=int,
        default=usual.eval_at_once,
        help="jobs in EVAL at once (default: %(default)s)",
    )


def _add_environment_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="NAME",
        help="what this machine has that environments may need, such as a GPU; repeat",
    )
    parser.add_argument(
        "--environment-memory-mib",
        type=int,
        default=ProcessLimits().data_bytes >> 20,
        help="what each process of an environment of another package may use",
    )
    parser.add_argument(
        "--repositories",
        type=Path,
        metavar="DIR",
        help="where the repositories are that rows of swe name (docs/swe.md)",
    )


def _add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sandbox",
        choices=PROVIDERS,
        default=BUBBLEWRAP,
        help="who holds the sandboxes (default: %(default)s); unsafe-local holds nothing back",
    )
    parser.add_argument(
        "--warm-sandboxes",
        type=int,
        default=4,
        metavar="N",
        help="sandboxes kept ready for each kind that environments need",
    )
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="what sandboxes may have as their root"
    )
    parser.add_argument(
        "--tool-environments",
        type=Path,
        metavar="DIR",
        help="what sandboxes may have below /opt/rollyard/tools, beside what Rollyard brings",
    )
    parser.add_argument(
        "--cgroup",
        type=Path,
        metavar="DIR",
        help="the delegated control group below which those of sandboxes are made (default: ours)",
    )


def _add_sandbox_limits(parser: argparse.ArgumentParser) -> None:
    totals = SandboxTotals()
    parser.add_argument(
        "--sandbox-memory-mib",
        type=int,
        default=totals.memory_bytes >> 20,
        help="what one sandbox may use, its files included",
    )
    parser.add_argument("--sandbox-cpus", type=float, default=totals.cpus)
    parser.add_argument(
        "--sandbox-host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host that environments may let their sandboxes reach by HTTPS; repeat",
    )


def _sandbox(flags: argparse.Namespace) -> SandboxSettings:
    memory_bytes = flags.sandbox_memory_mib << 20
    totals = SandboxTotals(
        memory_bytes=memory_bytes,
        disk_bytes=min(memory_bytes, SandboxTotals().disk_bytes),
        cpus=flags.sandbox_cpus,
    )
    sources = RootSources(images=flags.images, tool_environments=flags.tool_environments)
    return SandboxSettings(
        provider=flags.sandbox,
        totals=totals,
        sources=sources,
        hosts=tuple(flags.sandbox_host),
        cgroup=flags.cgroup,
    )


def _proxy(text: str) -> tuple[str, int]:
    url, _, servers = text.partition(",")
    count = int(servers or "1")
    if count < 1:
        raise ValueError(text)
    return url.rstrip("/"), count


def parse(arguments: Sequence[str]) -> AgentServerSettings:
    """The settings in the command line. Raises `RollyardError`; exits for --help and bad flags."""
    flags = _options().parse_args(arguments)
    tokens = tokens_of(flags)
    runner = _runner(flags)
    door = door_of(flags, runner, tokens)
    proxies = dict(flags.llm_proxy)
    return AgentServerSettings(
        server_id=flags.server_id,
        bind=bind_of(flags, tokens),
        tokens=tokens,
        log_format=flags.log_format,
        orchestrator=flags.orchestrator.rstrip("/"),
        llm_servers=(*(url.rstrip("/") for url in flags.llm_server), *proxies),
        proxies=proxies,
        follows_llm_nodes=flags.llm_announced,
        model=flags.model,
        stop_tokens=tuple(flags.stop_token),
        tool_calls=flags.tool_calls,
        tags=tuple(flags.tag),
        repositories=flags.repositories,
        runner=runner,
        door=door,
        nemo_gym=nemo_gym_of(flags, runner, tokens),
        warm_sandboxes=flags.warm_sandboxes,
        sandbox=_sandbox(flags),
        environments=ProcessLimits(data_bytes=flags.environment_memory_mib << 20),
        local_rewards=LocalRewardSettings(task_seconds=flags.reward_seconds),
        reward_service=reward_service_of(flags),
        presence=PresenceSettings(ready_seconds=flags.ready_seconds),
        secret=_identity(flags.identity_file),
    )


def _runner(flags: argparse.Namespace) -> RunnerSettings:
    return RunnerSettings(
        slots=flags.slots,
        ahead=jobs_ahead(max(1, flags.slots)) if flags.ahead is None else flags.ahead,
        init_at_once=flags.init_at_once,
        eval_at_once=flags.eval_at_once,
    )


def _identity(path: Path | None) -> str:
    """Proof that the server id is its own, read from `path` or made anew. Raises `LaunchError`."""
    if path is None:
        return secrets.token_hex(16)
    make_password_file(path)
    return read_secret(path).strip()


def main() -> None:
    try:
        settings = parse(sys.argv[1:])
        logs.configure(f"agent_server {settings.server_id}", settings.log_format)
        loaded = load(settings)
    except RollyardError as error:
        print(f"agent_server: {error}", file=sys.stderr)
        sys.exit(2)
    serve(lambda: start(settings, loaded), settings.bind, *settings.door_binds)


if __name__ == "__main__":
    main()
