"""The sandboxes of docs/sandboxes.md work as they are written."""

import re
from pathlib import Path

from agent_server.sandbox.totals import SandboxTotals

PAGE = (Path(__file__).parents[3] / "docs" / "sandboxes.md").read_text()


def test_the_code_of_the_docs_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for code in blocks:
        exec(code, {})


def test_the_totals_of_the_docs_are_those_of_the_settings() -> None:
    totals = SandboxTotals()
    said = " ".join(PAGE.split())
    assert f"memory {totals.memory_bytes >> 30} GiB with its files in it" in said
    assert f"{totals.processes} processes and threads, {totals.cpus:g} processors" in said
    assert f"{totals.disk_bytes >> 30} GiB in the workspace, {totals.inodes:,} files" in said
    assert f"[killed: {totals.too_much_memory}]" in said
