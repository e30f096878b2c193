"""Status of Runs for people and trainers, as pure functions of their state."""

from orchestrator.demand import prompts_to_feed
from orchestrator.failing import failing
from orchestrator.queues.runs import Run
from orchestrator.sampling.state import SamplerState
from orchestrator.why import Fleet, why_broken, why_run
from orchestrator.why_placement import why_never_offered, why_unoffered
from rollyard.errors import RollyardError
from rollyard.messages import Counters, RunStatus, Unit


def status_of(run: Run, fleet: Fleet) -> RunStatus:
    outstanding = run.state.outstanding
    effective, requested = _progress(run)
    return RunStatus(
        run_id=run.settings.run_id,
        batch_id=outstanding[0] if outstanding else None,
        requested_batch_size=requested,
        effective_groups=effective,
        open_groups=run.open_groups,
        idle=is_idle(run),
        prompts_wanted=prompts_to_feed(run, fleet.offer) if fleet.servers else 0,
        batch_ready=bool(run.state.delivered),
        counters=run.counters,
        batches=outstanding,
        batches_ready=tuple(run.state.delivered),
        last_report=run.last_report,
        failing=failing(run),
        closed=run.state.closed,
        share=run.share,
        waiting_for=why_run(run, fleet),
        unoffered=why_unoffered(run, fleet.servers),
        never_offered=why_never_offered(run, fleet.servers, fleet.known),
    )


def is_idle(run: Run) -> bool:
    return not (run.counters.jobs_queued or run.counters.jobs_leased or run.events_waiting)


def status_of_broken(run_id: str, error: RollyardError) -> RunStatus:
    return RunStatus(
        run_id=run_id,
        batch_id=None,
        requested_batch_size=0,
        effective_groups=0,
        open_groups=0,
        idle=False,
        prompts_wanted=0,
        batch_ready=False,
        counters=Counters(),
        waiting_for=why_broken(error),
    )


def has_batch(state: SamplerState, batch: str | None) -> bool:
    """Whether waiting for the Batch is over: it is complete, or no longer outstanding. None stands
    for any complete Batch."""
    if batch is None:
        return bool(state.delivered)
    return batch in state.delivered or batch not in state.outstanding


def _progress(run: Run) -> tuple[int, int]:
    """Units ready for the Batch now sampled, and units that it requests; if none is sampled, the
    units in the oldest complete Batch, twice."""
    state = run.state
    if state.wanted or not state.delivered:
        requested = state.wanted[0].requested_batch_size if state.wanted else 0
        return len(state.ready), requested
    oldest = next(iter(state.delivered.values()))
    by_trajectory = run.settings.unit is Unit.TRAJECTORIES
    units = sum(len(each.members) for each in oldest) if by_trajectory else len(oldest)
    return units, units
