"""Explanations of why a Run's Batch is not complete, as pure functions of the Run's state."""

from orchestrator.failing import failing, seen_dying
from orchestrator.queues.runs import Run
from orchestrator.queues.weights import Serving
from orchestrator.why_placement import why_no_more_slots
from orchestrator.why_weights import why_run_is_not_leased
from rollyard.messages import Unit


def why_not_complete(run: Run, blocked: str, unoffered: str, wanted: int, serving: Serving) -> str:
    """The reason why the Run's Batch is not complete.

    `blocked` says why no Slot can become free, if none can, and `unoffered` why queued Jobs can run
    nowhere, if some cannot; `wanted` is the number of Prompts that the trainer should feed.
    """
    state, counters = run.state, run.counters
    if run.set_aside:
        return f"its events cannot be concluded: {run.set_aside}"
    if state.closed:
        return "the run is closed"
    if not state.wanted and state.delivered:
        first = next(iter(state.delivered))
        waits = f"batch {first!r} is complete and waits for the trainer to acknowledge it"
        return waits + trainer_gone(run)
    if not state.wanted:
        return "the trainer has not requested a batch" + trainer_gone(run)
    not_leased = why_run_is_not_leased(run, serving)
    if not_leased:
        return not_leased
    if blocked and not counters.jobs_leased:
        return blocked
    if told := failing(run):
        return f"no more prompts are wanted until the trainer goes on: {told.sentence}"
    missing = _what_is_missing(run, unoffered, wanted)
    return missing + _limited(run) + _dying(run) + _filtered(run) + _begun_again(run)


def _what_is_missing(run: Run, unoffered: str, wanted: int) -> str:
    counters = run.counters
    offered = counters.jobs_queued - counters.jobs_unoffered
    missing = run.state.wanted[0].requested_batch_size - len(run.state.ready)
    sentence = (
        f"{missing} more effective {run.settings.unit.value}; {counters.jobs_leased} jobs are "
        f"on agent servers, {offered} wait for a free slot"
    )
    if wanted:
        sentence = f"the trainer's dataloader owes {wanted} prompts{trainer_gone(run)}"
    if not unoffered:
        return sentence
    if counters.jobs_leased or offered:
        return f"{sentence}; {unoffered}"
    return f"{unoffered}; {sentence}"


def _limited(run: Run) -> str:
    """A clause on a Run that has all its Slots; it follows what its Batch waits for."""
    limited = why_no_more_slots(run)
    return f"; {limited}" if limited else ""


def _dying(run: Run) -> str:
    """A clause on Groups that died since a Job succeeded; it follows what the Batch waits for."""
    dying = seen_dying(run)
    return f"; {dying.sentence}" if dying else ""


def trainer_gone(run: Run) -> str:
    """A clause on a silent trainer, to follow a wait for it; empty while it sends signs of life."""
    if run.trainer_left:
        return "; the trainer has left the run"
    if run.trainer_silent_seconds > run.settings.trainer_silent_seconds:
        return f"; the trainer has not been heard of for {run.trainer_silent_seconds:.0f} s"
    return ""


def _filtered(run: Run) -> str:
    """A clause on a Run whose Groups are mostly filtered; it follows what its Batch waits for."""
    filtered, kept = run.counters.groups_filtered, run.counters.groups_kept
    if filtered <= kept:
        return ""
    settings, accepted = run.settings, run.counters.jobs_accepted
    mean = f": the mean reward is {run.counters.rewards_sum / accepted:.3g}" if accepted else ""
    return (
        f"; {filtered} of {filtered + kept} complete groups were filtered, for by the criterion "
        f"{settings.criterion.value} they teach nothing{mean}"
    )


def _begun_again(run: Run) -> str:
    """A clause on members that exceeded the staleness bound; it follows what the Batch waits
    for."""
    state, settings = run.state, run.settings
    members = state.members_restarted - state.restarted_before
    if not members:
        return ""
    batch = state.wanted[0]
    oldest = batch.weight_version - settings.max_staleness
    sentence = (
        f"; {members} members were begun again for it because their tokens were older than "
        f"weight version {oldest}"
    )
    each = settings.group_size if settings.unit is Unit.GROUPS else 1
    if members > batch.requested_batch_size * each:
        sentence += ", more than it takes: do all LLM servers serve that version or newer?"
    return sentence
