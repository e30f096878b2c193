"""How many Prompts a Run wants of its trainer, where servers differ in what they can run."""

import msgspec
import pytest

from orchestrator.demand import MAX_UNOFFERED_JOBS, prompts_to_feed
from orchestrator.kinds import JobKind
from orchestrator.queues import Queues
from orchestrator.queues.limits import MAX_QUEUED_PER_SLOT
from orchestrator.queues.runs import Backlog, Run
from orchestrator.queues.servers import Offer
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState, Wanted
from rollyard.messages import AgentServer, Counters, Criterion, Prompt, RunSettings, Unit
from tests.orchestrator.moves import completed, decide, leased, report

CLASSES = {"agent-0": "math", "agent-1": "code"}
SLOTS = 8


def run(*, queued: int = 0, unoffered: int = 0, **jobs: int) -> Run:
    """A Run with this backlog, whose first Batch is sampled."""
    wanted = Wanted(batch_id="b", requested_batch_size=1, weight_version=0)
    return Run(
        settings=RunSettings(run_id="train", group_size=2, look_ahead_jobs=2),
        state=SamplerState(wanted=[wanted]),
        counters=Counters(
            jobs_queued=queued or unoffered + sum(jobs.values()), jobs_unoffered=unoffered
        ),
        concluded=0,
        events_waiting=0,
        open_groups=0,
        backlog=Backlog(jobs=jobs, unoffered_kinds=(JobKind("chess"),) if unoffered else ()),
    )


def offer(**free: int) -> Offer:
    """These free Slots, of 8 of all servers."""
    by_class = {name: server for server, name in CLASSES.items()}
    return Offer(
        free={by_class[name]: slots for name, slots in free.items()}, classes=CLASSES, slots=SLOTS
    )


@pytest.mark.parametrize(("leased", "wanted"), [(0, 1), (SLOTS - 1, 1), (SLOTS, 0)])
def test_without_a_look_ahead_a_job_waits_for_the_slots_that_others_hold(
    leased: int, wanted: int
) -> None:
    seen = run(math=0)
    settings = msgspec.structs.replace(seen.settings, look_ahead_jobs=0)
    counters = msgspec.structs.replace(seen.counters, jobs_leased=leased)
    alone = msgspec.structs.replace(seen, settings=settings, counters=counters)
    assert prompts_to_feed(alone, offer()) == wanted


@pytest.mark.parametrize(
    ("seen", "free", "wanted"),
    [
        (run(), offer(math=4), 3),
        (run(math=6), offer(math=4), 0),
        (run(math=2), offer(), 0),
        (run(math=2, code=2), offer(), 0),
    ],
)
def test_free_slots_and_the_look_ahead_are_what_is_wanted(
    seen: Run, free: Offer, wanted: int
) -> None:
    assert prompts_to_feed(seen, free) == wanted


@pytest.mark.parametrize(
    ("requested", "open_groups", "events", "wanted"),
    [(4, 8, 3, 3), (4, 8, 4, 1), (4, 3, 100, 3), (100, 100, 99, 3)],
)
def test_events_count_as_jobs_once_they_may_complete_all_that_is_requested(
    requested: int, open_groups: int, events: int, wanted: int
) -> None:
    batch = Wanted(batch_id="b", requested_batch_size=requested, weight_version=0)
    seen = msgspec.structs.replace(
        run(),
        state=SamplerState(wanted=[batch]),
        open_groups=open_groups,
        events_waiting=events,
    )
    assert prompts_to_feed(seen, offer(math=4)) == wanted


def test_where_trajectories_are_requested_an_event_may_complete_several() -> None:
    batch = Wanted(batch_id="b", requested_batch_size=4, weight_version=0)
    settings = RunSettings(
        run_id="train",
        group_size=2,
        look_ahead_jobs=2,
        unit=Unit.TRAJECTORIES,
        criterion=Criterion.COMPLETE,
    )
    seen = msgspec.structs.replace(
        run(), settings=settings, state=SamplerState(wanted=[batch]), open_groups=8
    )
    one, two = (msgspec.structs.replace(seen, events_waiting=events) for events in (1, 2))
    assert prompts_to_feed(one, offer(math=4)) == 3
    assert prompts_to_feed(two, offer(math=4)) == 2


def test_jobs_for_busy_servers_do_not_keep_an_idle_one_from_its_own() -> None:
    assert prompts_to_feed(run(code=6, math=0), offer(math=4)) == 3
    assert prompts_to_feed(run(code=6, math=6), offer(math=4)) == 0


def test_the_look_ahead_is_kept_for_each_class_of_servers() -> None:
    assert prompts_to_feed(run(code=2, math=0), offer()) == 1
    assert prompts_to_feed(run(code=2, math=2), offer()) == 0


def test_servers_that_a_run_never_had_jobs_for_are_no_reason_to_feed() -> None:
    assert prompts_to_feed(run(code=2), offer()) == 0
    assert prompts_to_feed(run(code=6), offer(math=4)) == 0


def test_jobs_for_busy_servers_are_fed_up_to_a_limit_for_an_idle_one() -> None:
    limit = MAX_QUEUED_PER_SLOT * SLOTS
    assert prompts_to_feed(run(code=limit, math=0), offer(math=4)) == 3
    assert prompts_to_feed(run(code=limit + 6, math=0), offer(math=4)) == 0


def test_jobs_that_no_server_can_run_do_not_count() -> None:
    assert prompts_to_feed(run(unoffered=500), offer(math=4)) == 3
    assert prompts_to_feed(run(unoffered=500, math=2), offer()) == 0


def test_a_dataset_that_no_server_can_run_is_not_read_to_its_end() -> None:
    assert prompts_to_feed(run(unoffered=MAX_UNOFFERED_JOBS), offer(math=4)) == 3
    assert prompts_to_feed(run(unoffered=MAX_UNOFFERED_JOBS + 6), offer(math=4)) == 0


def test_a_trainer_that_waits_is_woken_when_an_idle_server_wants_rows_of_its_own(
    patient_queues: Queues,
) -> None:
    """One server has more Jobs waiting than the look-ahead, the other has nothing."""
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    decide(queues, Open())
    for server_id, environment in CLASSES.items():
        queues.servers.register(
            AgentServer(
                server_id=server_id,
                url="http://127.0.0.1:9",
                slots=2,
                environments=(environment,),
            )
        )
    sources = ("math", "code", "code", "code")
    rows = [
        Prompt(prompt_id=f"p{n}", instance={"data_source": source})
        for n, source in enumerate(sources)
    ]
    queues.tasks.submit("train", rows)
    *_, first = queues.leases.lease(4)
    news = queues.connection.of_run("train", "news")
    queues.connection.do(lambda r: r.delete(news))
    report(queues, completed(first.lease))
    leased(queues)
    assert queues.connection.do(lambda r: r.exists(news))
