"""Rows made from releases of real libraries: rewarded for their fix, and for nothing else."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_server.environments.swe.environment import SANDBOX
from agent_server.repositories import Repositories
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox
from tests.agent_server.environments.swe.projects import begun
from tests.llm_fixtures import ROOT

EXAMPLE = ROOT / "examples" / "swe"
RECIPES = [json.loads(line) for line in (EXAMPLE / "recipes.jsonl").read_text().splitlines()]
NAMES = [f"pypi__{recipe['library']}-{recipe['after']}" for recipe in RECIPES]
MAKE_SECONDS = 240.0


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the rows of all recipes, and their repositories."""
    directory = tmp_path_factory.mktemp("instances")
    script = [sys.executable, str(EXAMPLE / "make_instances.py")]
    command = [*script, "rows", str(EXAMPLE / "recipes.jsonl"), str(directory)]
    subprocess.run(command, check=True, timeout=MAKE_SECONDS)
    return directory


@pytest.fixture(scope="module")
def rows(instances: Path) -> dict[str, dict[str, Any]]:
    lines = (instances / "rows.jsonl").read_text().splitlines()
    return {row["instance_id"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def repositories(instances: Path) -> Repositories:
    return Repositories(instances / "repositories")


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SANDBOX) as opened:
        yield opened


def test_there_are_eight_rows_of_three_libraries() -> None:
    assert len(RECIPES) >= 8
    assert len({recipe["library"] for recipe in RECIPES}) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_the_fix_is_rewarded(
    rows: dict[str, dict[str, Any]], repositories: Repositories, sandbox: Sandbox, name: str
) -> None:
    episode, question = begun(rows[name], repositories, sandbox)
    assert rows[name]["problem_statement"] in question
    episode.solve()
    grade = episode.grade()
    assert grade.reward == 1.0, grade.reason
    assert grade.components == {"fail_to_pass": 1.0, "pass_to_pass": 1.0}


@pytest.mark.parametrize("name", NAMES)
def test_what_repairs_nothing_is_not(
    rows: dict[str, dict[str, Any]], repositories: Repositories, sandbox: Sandbox, name: str
) -> None:
    episode, _ = begun(rows[name], repositories, sandbox)
    assert episode.grade().reason == "the agent changed nothing"
    sandbox.write(f"/workspace/{rows[name]['repo'].partition('/')[2]}/unused.py", b"pass\n")
    grade = episode.grade()
    assert grade.reward == 0.0
    assert grade.components == {"fail_to_pass": 0.0, "pass_to_pass": 1.0}, grade.reason


def test_the_agent_finds_no_later_release_and_no_test_of_it(
    rows: dict[str, dict[str, Any]], repositories: Repositories, sandbox: Sandbox
) -> None:
    begun(rows["pypi__parse-1.13.0"], repositories, sandbox)
    found = sandbox.bash(
        "cd parse && git log --oneline --all | wc -l; grep -c test_tz_compare test_parse.py; "
        "ls -A /workspace; ls -A /tmp",
        deadline_seconds=10,
    )
    assert found.output.split() == ["1", "0", "parse"]
