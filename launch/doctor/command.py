"""The `rollyard doctor` command. Exit code 1 when a check has failed."""

import typer
from rich.text import Text

from launch.doctor.check import CheckVerdict
from launch.engine_options import LLMPython
from launch.output import (
    DEFAULT_DIRECTORY,
    Directory,
    Json,
    Listing,
    TokenFile,
    Url,
    connect,
    show,
)
from launch.vllm_environment import DEFAULT_LLM_PYTHON
from rollyard.api import DEFAULT_URL
from rollyard.tokens import tokens_for
from serving import logs

COLOURS = {CheckVerdict.OK: "green", CheckVerdict.FAILED: "red", CheckVerdict.SKIPPED: "dim"}


def doctor(
    url: Url = DEFAULT_URL,
    directory: Directory = DEFAULT_DIRECTORY,
    llm_python: LLMPython = DEFAULT_LLM_PYTHON,
    json: Json = False,
    token_file: TokenFile = None,
) -> None:
    """Check this machine, the queues and every server, and say what to do about each problem."""
    # With it come sandboxes and the queues, which no other command has to wait for.
    from launch.doctor.examine import examine

    logs.configure("doctor")
    token = tokens_for(url, token_file).widest
    checks = examine(connect(url, token_file), url, token, directory.resolve(), llm_python)
    shown = Listing("check", "verdict", "finding", "what to do")
    for check in checks:
        verdict = Text(check.verdict, style=COLOURS[check.verdict])
        shown.add(check.name, verdict, check.finding, check.fix)
    show({"checks": checks}, [shown], json=json)
    if any(check.verdict is CheckVerdict.FAILED for check in checks):
        raise typer.Exit(1)
