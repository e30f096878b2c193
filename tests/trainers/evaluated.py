"""Evaluation as the core has it, for adapters whose trainer has none of its own."""

import secrets
from collections.abc import Sequence

from rollyard.rows import Row
from rollyard.trainers.evaluation import evaluate
from rollyard.trainers.sequences import rewards
from tests.trainers.contract import Start


def mean_reward(start: Start, rows: Sequence[Row]) -> float:
    run_id = f"{start.run.run_id}-eval-{secrets.token_hex(4)}"
    batch = evaluate(start.client, rows, start.run.settings, run_id=run_id)
    found, _ = rewards(batch)
    return float(found.mean())
