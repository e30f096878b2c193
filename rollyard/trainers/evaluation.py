"""Evaluation: every row sampled, nothing filtered, nothing trained on."""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from rollyard.client import Client
from rollyard.errors import WeightMismatch
from rollyard.messages import Batch, Criterion, RunSettings, Unit
from rollyard.rows import Row


def evaluate(
    client: Client,
    rows: Sequence[Row],
    settings: RunSettings,
    *,
    run_id: str | None = None,
    samples: int = 1,
) -> Batch:
    """The rows, each sampled `samples` times as the Run of `settings` samples, as Groups in the
    order of `rows`. It is a Run of its own, beside that one.

    `run_id` names one evaluation: one that was interrupted is continued under the same name. None
    makes a new one.
    """
    given: dict[str, Any] = msgspec.structs.asdict(settings)
    run_id = run_id or f"{settings.run_id}-eval-{secrets.token_hex(4)}"
    given |= {"run_id": run_id, "group_size": samples, "criterion": Criterion.COMPLETE}
    given |= {"unit": Unit.GROUPS, "prediction": type(settings.prediction)()}
    with client.run(rows, **given) as run:
        try:
            batch = run.rollout(len(rows))
        except WeightMismatch:  # published meanwhile: an evaluation updates no weights
            batch = run.rollout(len(rows))
        run.ack(batch)
        run.finish()
    # A prompt's id ends with the number of its row.
    groups = sorted(batch.groups, key=lambda group: group.prompt.prompt_id)
    return msgspec.structs.replace(batch, groups=tuple(groups))
