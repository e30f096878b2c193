"""`uv.lock` is that of `pyproject.toml`, and names nothing that only one machine can reach."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

CHECKOUT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
PUBLIC = {"pypi.org", "files.pythonhosted.org", "download.pytorch.org"}


@pytest.fixture(scope="module")
def packages() -> list[dict[str, Any]]:
    locked: list[dict[str, Any]] = tomllib.loads((CHECKOUT / "uv.lock").read_text())["package"]
    return locked


def files(packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for package in packages:
        found += package.get("wheels", [])
        found += [package["sdist"]] if "sdist" in package else []
    return found


def requirement(entry: dict[str, Any]) -> str:
    extras = ",".join(entry.get("extras", []))
    return f"{entry['name']}{f'[{extras}]' if extras else ''}{entry.get('specifier', '')}"


def normal(requirement: str) -> str:
    """Without its marker, and the clauses of its specifier in order."""
    found = re.fullmatch(r"([\w-]+)(\[.+\])?(.*)", requirement.partition(";")[0].replace(" ", ""))
    assert found is not None
    clauses = sorted(filter(None, found[3].split(",")))
    return found[1] + (found[2] or "") + ",".join(clauses)


def test_every_file_has_a_hash_and_comes_from_a_public_index(
    packages: list[dict[str, Any]],
) -> None:
    assert len(files(packages)) > 500
    for file in files(packages):
        assert file["hash"].startswith("sha256:")
        assert urlsplit(file["url"]).hostname in PUBLIC
    sources = {package["source"].get("registry") for package in packages} - {None}
    assert {urlsplit(source).hostname for source in sources} <= PUBLIC


def test_the_lock_is_of_what_pyproject_asks_for(packages: list[dict[str, Any]]) -> None:
    (metadata,) = (package["metadata"] for package in packages if package["name"] == "rollyard")
    asked = list(PROJECT["project"]["dependencies"])
    for requirements in PROJECT["project"]["optional-dependencies"].values():
        asked += requirements
    locked = {normal(requirement(entry)) for entry in metadata["requires-dist"]}
    assert {normal(each) for each in asked} == locked
    assert {
        group: {normal(each) for each in requirements}
        for group, requirements in PROJECT["dependency-groups"].items()
    } == {
        group: {normal(requirement(entry)) for entry in entries}
        for group, entries in metadata["requires-dev"].items()
    }


def test_pip_and_uv_install_the_same_uv() -> None:
    (pinned,) = PROJECT["dependency-groups"]["set-up"]
    assert f"\n{pinned} " in (CHECKOUT / "launch" / "uv.txt").read_text()
