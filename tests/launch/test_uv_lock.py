"""`uv.lock` is that of `pyproject.toml`, and names nothing that only one machine can reach."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHECKOUT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
LOCK: dict[str, Any] = tomllib.loads((CHECKOUT / "uv.lock").read_text())
PUBLIC = {"pypi.org", "files.pythonhosted.org", "download.pytorch.org"}
OURS = next(package for package in LOCK["package"] if package["name"] == "rollyard")


def files() -> list[dict[str, Any]]:
    found = []
    for package in LOCK["package"]:
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


def test_every_file_has_a_hash_and_comes_from_a_public_index() -> None:
    assert len(files()) > 500
    for file in files():
        assert file["hash"].startswith("sha256:")
        assert urlsplit(file["url"]).hostname in PUBLIC
    sources = {package["source"].get("registry") for package in LOCK["package"]} - {None}
    assert {urlsplit(source).hostname for source in sources} <= PUBLIC


def test_the_lock_is_of_what_pyproject_asks_for() -> None:
    metadata = OURS["metadata"]
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
