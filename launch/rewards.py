"""`rollyard rewards`: a reward service and its Redis, kept running until Ctrl-C.

People read stderr; a script reads one line of JSON, name to URL, on stdout.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from launch.deployment_tls import DeploymentTLS, prepare_tls
from launch.free_ports import free_port
from launch.llm_processes import LOOPBACK, url_of
from launch.local import LOGS, Report, start
from launch.lock import locked
from launch.output import Directory
from launch.process_spec import START_SECONDS, ProcessSpec
from launch.processes import Processes, module_command
from launch.supervisor import Supervisor
from launch.tls_options import TLSChoice, with_tls
from launch.up import one_line, tell_operator
from reward_service.redis_server import USER
from reward_service.scaling import ScalingSettings
from rollyard.tokens import make_password_file
from serving.every_address import EVERY_ADDRESS
from serving.log_format import LogFormat

DEFAULT_DIRECTORY = Path("rollyard-rewards")
DEFAULT_PORT = 8388
SERVICE = "rewards"


class RewardsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a reward service on this machine."""

    directory: Path
    """Directory of the logs and of the Redis's password."""
    port: int
    redis_port: int
    host: str = LOOPBACK
    """Address on which the service listens."""
    tls: DeploymentTLS | None = None
    options: tuple[str, ...] = ()
    """Further options of the service."""

    @property
    def password_file(self) -> Path:
        return self.directory / "redis-password"

    @property
    def called_at(self) -> str:
        """The host by which it is called from this machine."""
        return LOOPBACK if self.host in EVERY_ADDRESS else self.host

    @property
    def url(self) -> str:
        return url_of(self.called_at, self.port, tls=self.tls is not None)

    def processes(self) -> tuple[ProcessSpec, ...]:
        """The processes, in the order in which they start."""
        password = ("--password-file", str(self.password_file))
        redis = ProcessSpec(
            name="redis",
            kind="Redis",
            level=0,
            command=module_command(
                "reward_service.redis_server",
                *("--port", str(self.redis_port)),
                *("--data-dir", str(self.directory / "redis"), *password),
            ),
            port=self.redis_port,
            ready_path="",
            ready_seconds=START_SECONDS,
        )
        service = ProcessSpec(
            name=SERVICE,
            kind="the reward service",
            after=("redis",),
            level=1,
            command=module_command(
                "reward_service",
                *("--host", self.host),
                *("--port", str(self.port)),
                *("--redis-url", f"redis://{USER}@127.0.0.1:{self.redis_port}"),
                *("--redis-password-file", str(self.password_file)),
                *(self.tls.options if self.tls else ()),
                *self.options,
            ),
            host=self.called_at,
            port=self.port,
            tls=self.tls is not None,
            ready_path="/readyz",
            ready_seconds=START_SECONDS,
        )
        return redis, service


@with_tls
def rewards_command(
    *,
    port: Annotated[int, typer.Option(help="Port of the service.")] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    token_file: Annotated[
        Path | None, typer.Option(help="Tokens that callers must have beyond this machine.")
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Workers at most; there are none while there is no work.", min=1)
    ] = ScalingSettings().most_workers,
    idle_seconds: Annotated[
        int, typer.Option(help="Seconds until an idle worker leaves.", min=1)
    ] = ScalingSettings().idle_seconds,
    task_seconds: Annotated[int, typer.Option(help="Seconds for one answer.", min=1)] = 20,
    directory: Directory = DEFAULT_DIRECTORY,
    log_format: Annotated[
        LogFormat, typer.Option(help="Format of the service's log lines.")
    ] = LogFormat.TEXT,
    tls: TLSChoice,
) -> None:
    """Grade answers for agent servers, in as many workers as there is work for."""
    plan = RewardsPlan(
        directory=directory.resolve(),
        port=port,
        redis_port=free_port(),
        host=host,
        tls=tls.of(directory.resolve()),
        options=(
            *("--workers", str(workers), "--idle-seconds", str(idle_seconds)),
            *("--task-seconds", str(task_seconds), "--log-format", log_format),
            *(() if token_file is None else ("--token-file", str(token_file))),
        ),
    )
    console = Console(stderr=True)
    with console.status("starting") as status:

        def ready() -> None:
            status.stop()
            console.print(f"Grading at {plan.url}. Ctrl-C stops it.", highlight=False)
            print(json.dumps({SERVICE: plan.url}), flush=True)

        keep_grading(plan, lambda said: status.update(one_line(said)), ready)


def keep_grading(plan: RewardsPlan, report: Report, ready: Callable[[], None]) -> None:
    """Start the service, call `ready` once it is, and keep it running. It ends by raising."""
    processes = Processes()
    with locked(plan.directory), processes:
        if plan.tls is not None:
            prepare_tls(plan.tls, (plan.called_at,))
        make_password_file(plan.password_file)
        parts = start(plan.processes(), plan.directory / LOGS, processes, report)
        supervisor = Supervisor(parts, processes, plan.directory, tell_operator)
        ready()
        supervisor.keep()
