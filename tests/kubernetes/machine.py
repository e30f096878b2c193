"""A machine on which pods run, and the manifests that it runs, as a user renders them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kubernetes.kubelet import ROOT

ISOLATED = (
    "unshare",
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
    *("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def rendered(*words: str) -> str:
    """What `rollyard kubernetes` prints."""
    command = [sys.executable, "-m", "launch.cli", "kubernetes", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Pods:
    """The pods of some manifests; its methods are those of `Kubelet`."""

    def __init__(self, manifests: str, directory: Path) -> None:
        file = directory / "manifests.yaml"
        file.write_text(manifests)
        self._kubelet = subprocess.Popen(
            [*ISOLATED, sys.executable, "-m", "tests.kubernetes.kubelet", file, directory],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            assert self._kubelet.stdin is not None
            assert self._kubelet.stdout is not None
            self._kubelet.stdin.write(json.dumps([name, arguments]) + "\n")
            self._kubelet.stdin.flush()
            line = self._kubelet.stdout.readline()
            assert line, "the kubelet ended: these tests need user namespaces, and `ip` of iproute2"
            answer = json.loads(line)
            assert "error" not in answer, answer["error"]
            return answer["answer"]

        return call

    def end(self) -> None:
        self._kubelet.kill()
        self._kubelet.wait(30)
