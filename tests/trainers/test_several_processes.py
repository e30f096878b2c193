"""TRL's trainers in several processes, of which the main one drives the Run."""

import json
from pathlib import Path

import pytest

from tests.trainers.adapters import trl, trl_async
from tests.trainers.contract import Adapter
from tests.trainers.orchestrator import Orchestrator
from tests.trainers.system_process import KilledAfter, run_system_process
from tests.trainers.training import Training


@pytest.mark.parametrize("adapter", [trl.ADAPTER, trl_async.ADAPTER], ids=lambda each: each.name)
def test_two_processes_train_together_as_one_does(
    adapter: Adapter, tmp_path: Path, policy_dir: Path
) -> None:
    (tmp_path / "one").mkdir()
    one = Training(adapter, Orchestrator(), tmp_path / "one", policy_dir)
    one.run_process()
    two = one.another(tmp_path / "two")
    assert run_system_process(two, KilledAfter(call=20, seconds=0.1), processes=2)
    assert not run_system_process(two, processes=2)
    two.equals(one)
    others = json.loads((two.directory / "weights-1.json").read_text())
    assert others == two.weights
