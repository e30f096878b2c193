"""Whether the Groups of a Run die one after the other: pure functions over what the queues say."""

from orchestrator.queues.runs import Run
from rollyard.messages import FailingGroups


def failing(run: Run) -> FailingGroups | None:
    """What a trainer is to know before more of its dataset is spent; None while Jobs succeed.

    As many Groups as are open must have died: while others still run, those may do better.
    """
    state = run.state
    if state.dead_in_a_row < max(run.settings.failing_groups, run.open_groups):
        return None
    return seen_dying(run)


def seen_dying(run: Run) -> FailingGroups | None:
    """What has died since the last Job succeeded."""
    state = run.state
    if not state.dead_in_a_row:
        return None
    return FailingGroups(
        groups=state.dead_in_a_row,
        causes=tuple(dict.fromkeys(death.reason for death in reversed(state.deaths))),
        prompt_ids=tuple(death.group_id for death in state.deaths),
    )
