"""Images in the shape of those of two public datasets, with the small project and its fix in
them."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_server.sandbox.command import NOBODY
from agent_server.sandbox.machine import TOOLS
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.roots import RootSources
from tests.agent_server.environments.swe.projects import CODE, FIXED, ROW, make_repositories
from tests.llm_fixtures import ROOT

NEEDS_MORE = "\n\nimport built\nimport installed\n"
"""The end of `adding.py`, which needs what was built and installed when the image was made."""
_HIDDEN_TEST = """\
from adding import add


class TestIt:
    def test_add(self):
        assert add(2, 3) == 5
"""
SWE_GYM: dict[str, Any] = ROW | {"image_name": "me/sweb.eval.x86_64.me_s_adding-1:latest"}
R2E_GYM: dict[str, Any] = {
    "data_source": "swe",
    "repo_name": "adding",
    "docker_image": "me/adding_final:0123abc",
    "commit_hash": "0123abc",
    "problem_statement": ROW["problem_statement"],
    "patch": ROW["patch"],
    "execution_result_content": json.dumps(
        {"test_file_names": ["test_1.py"], "test_file_codes": [_HIDDEN_TEST]}
    ),
    "expected_output_json": json.dumps({"TestIt.test_add": "PASSED"}),
}
_PYTEST = ROOT / ".venv-tools" / "pytest"


class WithThisMachinesPrograms(RootSources, frozen=True):
    """Images whose /usr is this machine's: they need no copy of it."""

    def options(self, needs: SandboxNeeds, own: Sequence[str]) -> list[str]:
        shown = ["--ro-bind", "/usr", "/usr"] if needs.image else []
        return RootSources.options(self, needs, [*shown, *own])


def make_images(directory: Path) -> RootSources:
    """The images of both rows, and some in which no row can be worked on."""
    swe_gym = _make_root(directory / SWE_GYM["image_name"])
    _make_repository(swe_gym / "testbed")
    _make_environment(swe_gym / "opt" / "miniconda3" / "envs" / "testbed")
    r2e_gym = _make_root(directory / R2E_GYM["docker_image"])
    _make_repository(r2e_gym / "testbed")
    _make_environment(r2e_gym / "testbed" / ".venv")
    (r2e_gym / "r2e_tests").mkdir()
    (r2e_gym / "r2e_tests" / "test_1.py").write_text(_HIDDEN_TEST)
    (r2e_gym / "testbed" / "r2e_tests").symlink_to("/r2e_tests")
    (r2e_gym / "testbed" / "run_tests.sh").write_text("pytest r2e_tests\n")
    shutil.copytree(swe_gym, directory / "without-pytest", symlinks=True)
    for each in (directory / "without-pytest").glob("opt/*/*/*/lib/*/*/*pytest*"):
        each.unlink()
    shutil.copytree(swe_gym, directory / "of-somebody-else", symlinks=True)
    _make_root(directory / "without-repository")
    _give_away(directory)
    (directory / "of-somebody-else" / "testbed" / ".git").chmod(0o555)
    return WithThisMachinesPrograms(images=directory)


def _make_root(image: Path) -> Path:
    (image / "usr").mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (image / name).symlink_to(f"usr/{name}")
    return image


def _make_repository(directory: Path) -> None:
    """A clone at the base commit, which has a later one and what is ignored as well."""
    others = {
        ".gitignore": "built.py\ntracked.py\n",
        "adding.py": CODE + NEEDS_MORE,
        "tracked.py": "pass\n",
    }
    archive = make_repositories(directory.parent / "releases", others).archive("me/adding", "1.0")
    with tarfile.open(fileobj=io.BytesIO(archive)) as release:
        release.extractall(directory.parent, filter="data")
    shutil.rmtree(directory.parent / "releases")
    (directory.parent / "adding-1.0").rename(directory)
    _git(directory, "init --quiet --initial-branch later")
    _git(directory, "add --all --force")
    _git(directory, "commit --quiet --message base")
    (directory / "adding.py").write_text(FIXED + NEEDS_MORE)
    _git(directory, "commit --quiet --all --message fix")
    _git(directory, "tag 2.0")
    _git(directory, "checkout --quiet HEAD~1")
    (directory / "built.py").touch()


def _git(directory: Path, command: str) -> None:
    who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    subprocess.run(["git", *who, "-C", str(directory), *command.split()], check=True)


def _make_environment(directory: Path) -> None:
    """A Python with pytest, in which the repository is installed so that it comes first, as older
    setuptools do it."""
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python3").symlink_to((_PYTEST / "bin" / "python").resolve())
    shutil.copy(_PYTEST / "pyvenv.cfg", directory)
    (there,) = _PYTEST.glob("lib/*/site-packages")
    packages = directory / there.relative_to(_PYTEST)
    packages.mkdir(parents=True)
    for each in there.iterdir():
        if each.suffix != ".pth" and each.name != "__pycache__":
            (packages / each.name).symlink_to(f"{TOOLS}/pytest/{each.relative_to(_PYTEST)}")
    (packages / "installed.py").touch()
    (packages / "adding.pth").write_text("import sys; sys.path.insert(0, '/testbed')\n")


def _give_away(directory: Path) -> None:
    """Let sandboxes change the files: those of a server of root run as another user."""
    if os.geteuid() == 0:
        for each in directory.rglob("*"):
            os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
