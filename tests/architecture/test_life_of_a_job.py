"""The path that docs/architecture.md leads a reader along exists, file by file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"trainer": "rollyard", "orchestrator": "orchestrator", "agent server": "agent_server"}
SCRIPTS = "orchestrator/queues/scripts"
DEFINED = r"^\s*(?:def|class|(?:local )?function) {name}\b"


def steps() -> list[tuple[str, str, list[str]]]:
    """The process, the file and the functions of each place that the table names."""
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.partition("## Life of a Job")[2].partition("\n- ")[0]
    found, process = [], ""
    for row in re.findall(r"^\|(.*)\|$", table, flags=re.MULTILINE)[2:]:
        cells = [cell.strip() for cell in row.split("|")]
        process = cells[0] or process
        for named in re.findall(r"`([\w/]+\.(?:py|lua))(?:: (\w+))?`((?:, `\w+`)*)", cells[2]):
            functions = [named[1], *re.findall(r"\w+", named[2])]
            found.append((process, named[0], [name for name in functions if name]))
    return found


STEPS = steps()


def folder_of(process: str, file: str) -> str:
    return SCRIPTS if file.endswith(".lua") else FOLDERS[process]


def test_the_table_is_read() -> None:
    assert {process for process, _, _ in STEPS} == set(FOLDERS)
    assert len(STEPS) > 20


@pytest.mark.parametrize(("process", "file", "functions"), STEPS)
def test_a_step_names_what_exists(process: str, file: str, functions: list[str]) -> None:
    source = (ROOT / folder_of(process, file) / file).read_text()
    for name in functions:
        assert re.search(DEFINED.format(name=name), source, flags=re.MULTILINE), name
