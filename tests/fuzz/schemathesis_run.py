"""Schemathesis against a service, with everything that shows a failure again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.cases import RUN_SECONDS
from tests.llm_fixtures import ROOT


class Schemathesis:
    """Runs of one document against the service that it describes."""

    def __init__(self, document: str | Path, config: Path, token: str, directory: Path) -> None:
        """`document` is a URL or a path; `directory` is where reports are left."""
        self._document = document
        self._config = config
        self._directory = directory
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROLLYARD_TEST_TOKEN": token,
        }

    def run(self, seed: int, *options: str) -> dict[str, Any]:
        """Its report. Fails the test with what it found, and how to see it again."""
        report = self._directory / f"report-{seed}.json"
        command = [
            *(str(Path(sys.executable).with_name("st")), "--config-file"),
            *(str(self._config), "run", str(self._document)),
            *("--seed", str(seed), "--generation-database", "none", "--no-color", "--no-shrink"),
            *("--report", "json", "--report-json-path", str(report), *options),
        ]
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, f"seed {seed}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
        found: dict[str, Any] = json.loads(report.read_text())
        return found
