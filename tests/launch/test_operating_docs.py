"""docs/deploy.md, docs/runbook.md and what is in deploy/ say what there is, and run as written."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from launch.commands import app
from launch.config import CONFIG, commands_of, read_config
from tests.deployment_fixtures import RunningDeployment
from tests.launch.test_up import rollyard
from tests.llm_fixtures import ROOT

DEPLOY = (ROOT / "docs" / "deploy.md").read_text()
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
UNIT = ROOT / "deploy" / "rollyard.service"
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
LINES = re.findall(r"^    rollyard (.*?) *(?:#.*)?$", RUNBOOK + DEPLOY, re.MULTILINE)
ASKING = ("status", "runs", "servers", "dead", "jobs", "config")
"""Commands that change nothing, and answer whatever there is."""


def commands_named(text: str) -> set[str]:
    return set(re.findall(r"`rollyard ([a-z]+)", text)) | {line.split()[0] for line in LINES}


def test_every_command_that_the_pages_name_exists() -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    named = commands_named(RUNBOOK + DEPLOY)
    assert {"status", "why", "doctor", "drain", "requeue", "dismiss", "down"} <= named
    assert named <= set(commands)


def test_what_asks_runs_as_written(lasting_deployment: RunningDeployment) -> None:
    asking = [line.split() for line in LINES if line.split()[0] in ASKING]
    assert len(asking) >= 6
    for words in asking:
        url = () if words[0] == "config" else ("--url", lasting_deployment.url)
        answer = rollyard(*words, *url)
        assert answer.returncode == 0, answer.stderr


def test_the_settings_of_the_page_are_taken(tmp_path: Path) -> None:
    taken = []
    for text in re.findall(r"```toml\n(.*?)```", DEPLOY, re.DOTALL):
        (tmp_path / CONFIG).write_text(text)
        taken.append(read_config(tmp_path / CONFIG, commands_of(app)))
    whole, tls = taken
    assert whole["up"]["gpus"] == "0,1,2,3"
    assert whole["down"]["directory"] == "/var/lib/rollyard/yard"
    assert tls["up"]["host"] == "gpu7.example.org"


def test_the_unit_starts_what_there_is() -> None:
    (start,) = re.findall(r"^ExecStart=\S+/rollyard (\S+)$", UNIT.read_text(), re.MULTILINE)
    assert start in get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a program and a user that are there."""
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE)
    (tmp_path / UNIT.name).write_text(text.replace("User=rollyard", "User=root"))
    command = ["systemd-analyze", "verify", str(tmp_path / UNIT.name)]
    verdict = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (verdict.returncode, verdict.stderr) == (0, "")


def test_the_container_is_made_from_what_there_is() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) ", CONTAINERFILE, re.MULTILINE)
    assert copied
    assert all((ROOT / each).exists() for each in copied)
    (start,) = re.findall(r'^CMD \["(\w+)"', CONTAINERFILE, re.MULTILINE)
    assert start in get_command(app).commands  # type: ignore[attr-defined]
