"""The wheel, installed where there is no checkout: `rollyard up` and the README's loop.

In the environment variable `ROLLYARD_WHEEL_PYTHONS` are the Pythons to try it with: `make wheel`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.free_ports import free_ports
from tests.e2e.test_readme import README, REWARDS, URL
from tests.llm_fixtures import ROOT

PYTHONS = os.environ.get("ROLLYARD_WHEEL_PYTHONS", sys.executable).split()
OUR_UV = ROOT / ".venv-uv" / "bin" / "uv"
"""What `make environments` has, where the one of PATH does not fit."""
UV = str(OUR_UV if OUR_UV.exists() else shutil.which("uv"))
SECONDS = 240.0


def run(*command: str, cwd: Path) -> str:
    """Stdout of a command that must succeed, in a directory and an environment without ours."""
    kept = {"PATH", "HOME", "TMPDIR", "LANG", "XDG_RUNTIME_DIR"}
    kept |= {name for name in os.environ if name.startswith(("UV_", "SSL_")) or "proxy" in name}
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={name: os.environ[name] for name in kept & set(os.environ)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", str(directory), cwd=ROOT)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(params=PYTHONS)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Path:
    """The directory of the programs of a clean environment that has the wheel, and what it asks for
    in the versions that we test with."""
    wanted = tmp_path / "constraints.txt"
    options = ("--no-dev", "--no-emit-project", "--no-hashes", "--output-file", str(wanted))
    run(UV, "export", "--quiet", "--frozen", "--extra", "launch", *options, cwd=ROOT)
    run(UV, "venv", "--quiet", "--python", request.param, "clean", cwd=tmp_path)
    programs = tmp_path / "clean" / "bin"
    asked = f"rollyard[launch] @ {wheel.as_uri()}"
    python = ("--python", str(programs / "python"))
    run(UV, "pip", "install", "--quiet", *python, "-c", str(wanted), asked, cwd=tmp_path)
    return programs


def test_the_wheel_serves_the_loop_of_the_readme_away_from_any_checkout(
    installed: Path, tmp_path: Path
) -> None:
    away, rollyard = tmp_path / "away", str(installed / "rollyard")
    away.mkdir()
    port = str(free_ports(agent_servers=2, llm_servers=1).orchestrator)
    up = ("up", "--llm", "scripted", "--slots", "4", "--detach", "--port", port)
    try:
        url = json.loads(run(rollyard, *up, cwd=away))["orchestrator"]
        code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
        loop = run(str(installed / "python"), "-c", code.replace(URL, url), cwd=away)
        assert [bool(REWARDS.match(line)) for line in loop.splitlines()] == [True] * 3
        assert "checkout" not in run(rollyard, "status", "--url", url, cwd=away)
    finally:
        run(rollyard, "down", cwd=away)
