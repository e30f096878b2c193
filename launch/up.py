"""`rollyard up`: everything on this machine, kept running until Ctrl-C.

People read the table on stderr; a script reads one line of JSON, name to URL, on stdout.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import requests
from rich.console import Console
from rich.text import Text

from launch.local import LOGS, Report, log_of, running_deployment
from launch.output import Listing
from launch.plan import DeploymentSettings
from launch.processes import Processes
from launch.supervisor import Supervisor
from rollyard.http import DirectSession

DOORS = "PRORL_SERVER_URLS"
"""Name under which the ProRL doors are told, which is that of their clients' variable."""

GYM = "nemo-gym"
"""Name under which the file is told that NeMo-Gym takes as a configuration."""

CONTROL = "llm-node"
"""Name of the part that puts weights on the LLM servers."""
ASK_SECONDS = 5.0
READY_BUT = "ok, but "
"""How a node begins that is ready for weights, and cannot serve those that are published."""

Urls = dict[str, str]
"""Process name -> URL, in the order in which the processes started."""


def up(settings: DeploymentSettings, console: Console) -> None:
    """Start a deployment and keep it running. It ends by raising: `Interrupted`, or `LaunchError`
    if it cannot go on."""
    with console.status("starting") as status:

        def ready(urls: Urls) -> None:
            status.stop()
            announce(urls, settings, console, how_to_stop="Ctrl-C stops it all.")

        keep_up(settings, lambda said: status.update(one_line(said)), ready)


def keep_up(settings: DeploymentSettings, report: Report, ready: Callable[[Urls], None]) -> None:
    """Start everything, call `ready` once it is, and keep it running. It ends by raising.

    What dies before that is not started again: most likely something is wrong with the settings.
    """
    processes = Processes()
    with running_deployment(settings, processes, report) as parts:
        supervisor = Supervisor(parts, processes, settings.directory, tell_operator)
        ready({spec.name: spec.url for spec, _ in parts})
        supervisor.keep()


def tell_operator(sentence: str) -> None:
    """Tell on stderr what became of a part, and when."""
    with contextlib.suppress(OSError):  # its disk may be full, or its reader gone
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} rollyard: {sentence}\n")
        sys.stderr.flush()


def announce(
    urls: Urls, settings: DeploymentSettings, console: Console, *, how_to_stop: str
) -> None:
    show_processes(urls, settings.directory, console, f"Rollyard is up. {how_to_stop}")
    console.print(f"Tokens: {settings.token_file}", highlight=False, soft_wrap=True)
    if settings.prorl_server_urls:
        urls = {**urls, DOORS: settings.prorl_server_urls}
        console.print(f"{DOORS}={urls[DOORS]}", highlight=False, soft_wrap=True)
    if settings.nemo_gym_agents:
        file = settings.nemo_gym_file
        file.write_text(json.dumps(settings.nemo_gym_agents, indent=2) + "\n")  # JSON is YAML
        urls = {**urls, GYM: str(file)}
        console.print(f"NeMo-Gym's configuration: {file}", highlight=False, soft_wrap=True)
    if trouble := _trouble_with_weights(urls[CONTROL], settings):
        sentence = f"No job starts yet: {trouble}, or begin anew in another --directory"
        console.print(sentence, style="yellow", highlight=False, soft_wrap=True)
    print(json.dumps(urls), flush=True)


def _trouble_with_weights(url: str, settings: DeploymentSettings) -> str:
    """Reason why the published weights, which an earlier trainer may have left, cannot be served;
    empty if none is known."""
    ca_file = settings.tls.ca_file if settings.tls else None
    with (
        contextlib.suppress(requests.RequestException),
        DirectSession(ca_file=ca_file) as session,
    ):
        said = session.get(f"{url}/readyz", timeout=ASK_SECONDS).text.strip()
        return said.removeprefix(READY_BUT) if said.startswith(READY_BUT) else ""
    return ""


def show_processes(urls: Urls, directory: Path, console: Console, title: str) -> None:
    shown = Listing("process", "URL", "log", title=title)
    for name, url in urls.items():
        shown.add(name, url, str(log_of(name, directory / LOGS)))
    console.print(shown.table())


def one_line(said: str) -> Text:
    """Text for a spinner: cut at the end of the line, and never interpreted as markup."""
    return Text(said, no_wrap=True, overflow="ellipsis")
