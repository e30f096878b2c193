"""The number of Prompts that a Run wants, as a pure function of its state.

- Free Slots have work, and `look_ahead_jobs` wait: so many are wanted, and no more.
- Where others hold the Slots, one Job waits even without a look-ahead: no Slot would ever be free.
- Where servers differ, this holds for each class of them that the Run has had Jobs for. What a row
  needs is known once it is drawn, so that more wait for other servers meanwhile, up to
  `MAX_QUEUED_PER_SLOT`.
- Jobs that no server can run count for nothing, up to `MAX_UNOFFERED_JOBS`: rows that can run are
  fed past them, and a dataset that has no other is not read to its end.
"""

from collections.abc import Mapping

from orchestrator.failing import failing
from orchestrator.queues.limits import MAX_QUEUED_PER_SLOT
from orchestrator.queues.runs import Run
from orchestrator.queues.servers import Offer
from orchestrator.sampling.sampler import prompts_wanted
from rollyard.messages import Unit

MAX_UNOFFERED_JOBS = 10_000
"""Jobs of a Run that may wait for abilities that no server has while more Prompts are fed."""


def prompts_to_feed(run: Run, offer: Offer) -> int:
    """Number of Prompts that the trainer should feed now."""
    if failing(run):
        return 0
    queued = _jobs_in_the_way(run, offer)
    prompts_unheard = run.counters.groups_fed - run.state.groups_fed
    if not run.settings.first_members:
        # The sampler has yet to decide whether these Prompts become Jobs: count all as queued.
        queued += prompts_unheard * run.settings.members
    events = max(0, run.events_waiting - prompts_unheard)
    if _may_complete(run, prompts_unheard, events):
        queued += events
    free = offer.free_slots or _slots_of_others(run, offer)
    return prompts_wanted(run.settings, run.state, queued_jobs=queued, free_slots=free)


def _slots_of_others(run: Run, offer: Offer) -> int:
    """1 if a Run that looks no further than the free Slots may wait for one that others hold."""
    return int(not run.settings.look_ahead_jobs and run.counters.jobs_leased < offer.slots)


def _may_complete(run: Run, prompts_unheard: int, events: int) -> bool:
    """Whether so many events, of which the sampler has yet to hear, may complete all that is
    requested: Jobs fed meanwhile would run in vain, and make it lag further."""
    groups = min(events, run.open_groups + prompts_unheard)
    by_trajectory = run.settings.unit is Unit.TRAJECTORIES
    units = groups * run.settings.members if by_trajectory else groups
    requested = sum(wanted.requested_batch_size for wanted in run.state.wanted)
    return units >= requested - len(run.state.ready)


def _jobs_in_the_way(run: Run, offer: Offer) -> int:
    """Number of the Run's queued Jobs that count against what is wanted."""
    counters, look_ahead = run.counters, run.settings.look_ahead_jobs
    offered = counters.jobs_queued - counters.jobs_unoffered
    too_many = max(0, counters.jobs_unoffered - MAX_UNOFFERED_JOBS)
    free = offer.free_by_class()
    return too_many + jobs_that_count(offered, run.backlog.jobs, free, look_ahead, offer.slots)


def jobs_that_count(
    queued: int, by_class: Mapping[str, int], free: Mapping[str, int], look_ahead: int, slots: int
) -> int:
    """Number of the `queued` Jobs, all of which some server can run, that count against what is
    wanted.

    `by_class` has how many of them each class of servers can run, for the classes that the Run has
    had Jobs for, and `free` the free Slots of all classes.
    """
    lacks = (free.get(name, 0) + look_ahead - jobs for name, jobs in by_class.items())
    enough = sum(free.values()) + look_ahead
    return min(queued, max(enough - max(lacks, default=0), queued - MAX_QUEUED_PER_SLOT * slots))
