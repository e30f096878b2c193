"""Rollouts that NeMo-Gym's own command collects from agent servers, and its own reading of them."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.real_environments.conftest import TOOLS

GYM = TOOLS / "nemo-gym" / "bin"
SECONDS = 900.0

_READ = """
import sys
from nemo_gym.base_resources_server import BaseVerifyResponse
for line in sys.stdin:
    BaseVerifyResponse.model_validate_json(line)
"""


class Collection:
    """One run of `gym eval run`, in a directory of its own, which may go on."""

    def __init__(self, directory: Path, head: str, rows: Sequence[dict[str, Any]]) -> None:
        """`head` is the URL that tells where the rows' agent servers are."""
        self._directory = directory
        rows_file = directory / "rows.jsonl"
        rows_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        host, _, port = head.removeprefix("http://").rpartition(":")
        self._rollouts = directory / "rollouts.jsonl"
        self._command = [
            *(str(GYM / "gym"), "eval", "run", "--no-serve", "+upload_rollouts_to_wandb=false"),
            *(f"+head_server.host={host}", f"+head_server.port={port}"),
            *(f"+input_jsonl_fpath={rows_file}", f"+output_jsonl_fpath={self._rollouts}"),
        ]

    def begin(self, *options: str) -> "subprocess.Popen[bytes]":
        with (self._directory / "gym.log").open("ab") as log:
            return subprocess.Popen(
                [*self._command, *options], stdout=log, stderr=log, cwd=self._directory
            )

    def collect(self, *options: str) -> list[dict[str, Any]]:
        """The rollouts. Fails if any was refused."""
        self.end(self.begin(*options))
        return self.rollouts()

    def end(self, running: "subprocess.Popen[bytes]") -> None:
        status = running.wait(SECONDS)
        assert status == 0, (self._directory / "gym.log").read_text()[-3000:]
        assert not self._rollouts.with_name("rollouts_failures.jsonl").read_text()

    def rollouts(self) -> list[dict[str, Any]]:
        """Those that were collected so far."""
        if not self._rollouts.exists():
            return []
        lines = self._rollouts.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def means(self) -> dict[str, float]:
        """The means that it got of each agent server, by the agent server's name."""
        told = json.loads(self._rollouts.with_name("rollouts_aggregate_metrics.json").read_text())
        return {each["agent_ref"]["name"]: each["key_metrics"]["mean/reward"] for each in told}


def read_by_nemo_gym(rollouts: Sequence[dict[str, Any]]) -> None:
    """Fails unless each is what NeMo-Gym's own types take for a verified response."""
    ended = subprocess.run(
        [str(GYM / "python"), "-c", _READ],
        input="\n".join(map(json.dumps, rollouts)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
