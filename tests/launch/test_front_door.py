"""The `rollyard` command before it does anything: what it needs, and what it says of itself."""

import os
import signal
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.launch.test_up import rollyard

CHECKOUT = Path(__file__).parents[2]


def test_without_its_extra_the_command_names_what_to_install(tmp_path: Path) -> None:
    """An interpreter that has what a trainer needs, and nothing else."""
    venv.create(tmp_path / "bare", symlinks=True)
    libraries = next((tmp_path / "bare" / "lib").glob("python*")) / "site-packages"
    for package in ("msgspec", "requests", "urllib3", "idna", "certifi", "charset_normalizer"):
        found = subprocess.run(
            [sys.executable, "-c", f"import {package}; print({package}.__path__[0])"],
            capture_output=True,
            text=True,
            check=True,
        )
        (libraries / package).symlink_to(found.stdout.strip())
    answer = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "-m", "launch.cli", "--help"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("rollyard: the command line needs more than the client:")
    assert "pip install 'rollyard[launch]'" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_ctrl_c_while_the_command_still_imports_is_one_word(tmp_path: Path) -> None:
    """The first module of the command says that it is being imported, and takes for ever."""
    (tmp_path / "typer.py").write_text(
        "import signal\nprint('importing', flush=True)\nwhile True: signal.pause()\n"
    )
    command = subprocess.Popen(
        [sys.executable, "-m", "launch.cli", "status"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    assert command.stdout.readline() == "importing\n"
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert said == "rollyard: stopped\n"
    assert command.returncode == 130


@pytest.mark.parametrize("arguments", [("why", b"\xff"), ("up", "--directory", b"/tmp/\xff")])
def test_an_argument_that_is_not_text_is_refused_in_one_sentence(
    arguments: tuple[str | bytes, ...],
) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "launch.cli", *arguments],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith(b"rollyard: the argument ")
    assert len(answer.stderr.splitlines()) == 1


def test_the_version_is_the_package_s() -> None:
    answer = rollyard("--version")
    assert answer.stdout == f"rollyard {version('rollyard')}\n"


def test_the_help_says_what_each_exit_code_means() -> None:
    said = " ".join(rollyard("--help").stdout.split())
    assert "0 done, 1 failed or refused" in said
    assert "--show-completion" in said
