"""One name, one thing: a reader who knows a class by its name knows it everywhere."""

import ast
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXCEPTIONS: dict[str, str] = {
    "Rollouts": "of each adapter: a trainer's script imports one, from the module of its trainer",
}
"""Name of several public classes -> why each of them should keep it."""


def classes() -> dict[str, list[str]]:
    """Public class -> the files that have one of this name; nested classes count."""
    found = defaultdict(list)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in settings["tool"]["importlinter"]["root_packages"]:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(file.relative_to(ROOT)))
    return found


def test_every_public_class_has_a_name_of_its_own() -> None:
    shared = {name: files for name, files in classes().items() if len(files) > 1}
    assert {name: files for name, files in shared.items() if name not in EXCEPTIONS} == {}


def test_every_exception_is_one() -> None:
    shared = {name for name, files in classes().items() if len(files) > 1}
    assert set(EXCEPTIONS) <= shared
