"""Detection of Runs whose Groups die one after the other, as pure functions of their state."""

from orchestrator.queues.runs import Run
from rollyard.messages import FailingGroups


def failing(run: Run) -> FailingGroups | None:
    """The deaths that a trainer must hear of before more of its dataset is spent; None if they are
    too few, or no Batch is wanted.

    At least as many Groups must have died as are open, since the open ones may still succeed.
    """
    state = run.state
    if not state.wanted or state.dead_in_a_row < max(run.settings.failing_groups, run.open_groups):
        return None
    return seen_dying(run)


def seen_dying(run: Run) -> FailingGroups | None:
    """The Groups that died since the last Job succeeded; None if none did."""
    state = run.state
    if not state.dead_in_a_row:
        return None
    return FailingGroups(
        groups=state.dead_in_a_row,
        causes=tuple(dict.fromkeys(death.reason for death in reversed(state.deaths))),
        prompt_ids=tuple(death.group_id for death in state.deaths),
    )
