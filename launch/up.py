"""`rollyard up`: everything on this machine, left running until Ctrl-C or until a part dies.

People read the table on stderr; a script reads one line of JSON, name to URL, on stdout.
"""

import json

from rich.console import Console
from rich.table import Table

from launch.plan import ProcessSpec, YardSettings
from launch.processes import Processes, obituary
from launch.yard import running_yard
from rollyard.errors import LaunchError


def up(settings: YardSettings, console: Console) -> None:
    """Returns only by raising: `Stopped`, or `LaunchError` when a process died."""
    processes = Processes()
    with (
        console.status("starting") as status,
        running_yard(
            settings, processes, lambda name: status.update(f"waiting for {name}")
        ) as plan,
    ):
        status.stop()
        console.print(summary(plan, settings))
        console.print(f"Tokens: {settings.token_file}", highlight=False, soft_wrap=True)
        print(json.dumps({spec.name: spec.url for spec in plan}), flush=True)
        ended = processes.wait_for_first_exit()
        assert ended is not None  # without a deadline the wait ends with an exit
        raise LaunchError(obituary(ended))


def summary(plan: tuple[ProcessSpec, ...], settings: YardSettings) -> Table:
    table = Table(title="Rollyard is up. Ctrl-C stops it all.", title_justify="left")
    table.add_column("process")
    table.add_column("URL")
    table.add_column("log", overflow="fold")
    for spec in plan:
        log = settings.directory / "logs" / f"{spec.name}.log"
        table.add_row(spec.name, spec.url, str(log))
    return table
