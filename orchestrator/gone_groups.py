"""The Groups of a Run that were dropped, as far as they are remembered: by number and reason.

The dead are not among them: each dead Job keeps its history.
"""

from orchestrator.queues.runs import Run
from rollyard.messages import GoneGroups

_REASONS = {
    "filtered": "they teach nothing by the criterion {criterion}",
    "cancelled": "an operator cancelled one of their jobs",
    "skipped": "the history of their prompts predicted that they would not be effective",
    "cut_short": "after their first members, the others would have cost more than new groups",
    "discarded": "a batch was complete without them, and the run keeps nothing for the next one",
}
"""Fate of a dropped Group -> why it was dropped."""


def gone_groups(run: Run) -> tuple[GoneGroups, ...]:
    numbers = {fate: getattr(run.counters, f"groups_{fate}") for fate in _REASONS}
    return tuple(
        GoneGroups(
            run_id=run.settings.run_id,
            fate=fate,
            groups=groups,
            reason=_REASONS[fate].format(criterion=run.settings.criterion.value),
        )
        for fate, groups in numbers.items()
        if groups
    )
