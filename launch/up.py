"""`rollyard up`: everything on this machine, left running until Ctrl-C or until a part dies.

People read the table on stderr; a script reads one line of JSON, name to URL, on stdout.
"""

import json
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from launch.local import LOGS, Report, log_of, running_deployment
from launch.output import Listing
from launch.plan import DeploymentSettings
from launch.processes import Processes, describe_exit
from rollyard.errors import LaunchError

DOORS = "PRORL_SERVER_URLS"
"""Name under which the ProRL doors are told, which is that of their clients' variable."""

Urls = dict[str, str]
"""Process name -> URL, in the order in which the processes started."""


def up(settings: DeploymentSettings, console: Console) -> None:
    """Start a deployment and watch it. It ends by raising: `Interrupted`, or `LaunchError` if a
    process died."""
    with console.status("starting") as status:

        def ready(urls: Urls) -> None:
            status.stop()
            announce(urls, settings, console, how_to_stop="Ctrl-C stops it all.")

        keep_up(settings, lambda said: status.update(one_line(said)), ready)


def keep_up(settings: DeploymentSettings, report: Report, ready: Callable[[Urls], None]) -> None:
    """Start everything, call `ready` once it is, and watch it. It ends by raising."""
    processes = Processes()
    with running_deployment(settings, processes, report) as plan:
        ready({spec.name: spec.url for spec in plan})
        raise LaunchError(describe_exit(processes.wait_for_first_exit()))


def announce(
    urls: Urls, settings: DeploymentSettings, console: Console, *, how_to_stop: str
) -> None:
    shown = Listing("process", "URL", "log", title=f"Rollyard is up. {how_to_stop}")
    for name, url in urls.items():
        shown.add(name, url, str(log_of(name, settings.directory / LOGS)))
    console.print(shown.table())
    console.print(f"Tokens: {settings.token_file}", highlight=False, soft_wrap=True)
    if settings.prorl_server_urls:
        urls = {**urls, DOORS: settings.prorl_server_urls}
        console.print(f"{DOORS}={urls[DOORS]}", highlight=False, soft_wrap=True)
    print(json.dumps(urls), flush=True)


def one_line(said: str) -> Text:
    """Text for a spinner: cut at the end of the line, and never interpreted as markup."""
    return Text(said, no_wrap=True, overflow="ellipsis")
