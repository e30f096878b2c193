"""What one event, one look and one end cost in a Run of very many Groups: counted, not timed."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest
import redis

from orchestrator.collector import Collector, conclusion_of
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.queues.conclusions import Moved
from orchestrator.queues.runs import Run, Runs
from orchestrator.sampling.decisions import Cancel, Drop, Hold, Park, Why
from orchestrator.trainers import Trainers
from rollyard.errors import Conflict, Overtaken, TooLarge, Unavailable
from rollyard.messages import AgentServer, Blame, JobState, Lease, Prediction, Prompt, RunSettings
from tests.orchestrator.moves import (
    assert_conserved,
    completed,
    failed,
    leased,
    moved_by,
    report,
)
from tests.queue_fixtures import QueueMaker

FEW, MANY = 10, 2000
MakePrompt = Callable[[str], Prompt]
OpenRun = Callable[[int], Queues]


@contextmanager
def bytes_moved(store: "redis.Redis") -> Iterator[list[int]]:
    """Between all clients and Redis meanwhile."""

    def moved() -> int:
        stats = store.info("stats")
        return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])

    counted = [moved()]
    yield counted
    counted[0] = moved() - counted[0]


@pytest.fixture
def store(admin_redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(admin_redis_url) as client:
        yield client


def run_of_groups(queues: Queues, server: AgentServer, prompt: MakePrompt, groups: int) -> None:
    """An open Run of so many Groups, all concluded."""
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt(f"p{number:06}") for number in range(groups)])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=groups))
    collect(queues)


@pytest.fixture
def open_run(make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt) -> OpenRun:
    """Makes such a Run, in queues of its own."""

    def make(groups: int) -> Queues:
        queues = make_queues(Queues)
        run_of_groups(queues, server, prompt, groups)
        return queues

    return make


def collect(queues: Queues) -> None:
    while (run := queues.runs.read("train")).events_waiting or run.sweeping:
        Collector(queues.events, queues.runs, lambda _: None).collect("train")


def test_an_event_moves_as_many_bytes_in_a_run_of_many_groups_as_in_one_of_few(
    open_run: OpenRun, store: "redis.Redis"
) -> None:
    def cost(groups: int) -> int:
        queues = open_run(groups)
        report(queues, completed(leased(queues)))
        with bytes_moved(store) as moved:
            collect(queues)
        assert len(queues.runs.read("train").state.open["p000000"].done) == 1
        return moved[0]

    few, many = cost(FEW), cost(MANY)
    assert many < 1.2 * few


def test_a_look_at_a_run_moves_as_many_bytes_however_many_groups_it_has(
    open_run: OpenRun, store: "redis.Redis"
) -> None:
    def cost(groups: int) -> int:
        queues = open_run(groups)
        with bytes_moved(store) as moved:
            assert queues.runs.read("train").open_groups == groups
        return moved[0]

    few, many = cost(FEW), cost(MANY)
    assert many < 1.2 * few


def test_closing_a_run_asks_as_much_of_redis_however_many_jobs_are_queued(
    open_run: OpenRun, store: "redis.Redis"
) -> None:
    def cost(groups: int) -> int:
        queues = open_run(groups)
        queues.events.close("train")
        before = calls(store)
        collect(queues)
        asked = calls(store) - before
        assert queues.runs.read("train").counters.jobs_dropped == 2 * groups
        return asked

    few, many = cost(FEW), cost(MANY)
    assert abs(many - few) < 10


def calls(store: "redis.Redis") -> int:
    """That Redis has carried out, those of scripts too, but for questions about itself."""
    told = store.info("commandstats")
    return sum(int(each["calls"]) for name, each in told.items() if name != "cmdstat_info")


@pytest.mark.parametrize(
    ("prediction", "submitted"),
    [(Prediction(), 65_536), (Prediction(skip_by_history=True), 0)],
    ids=["jobs", "prompts that become jobs if their history is good"],
)
def test_a_request_beyond_the_bound_of_queued_jobs_is_refused_before_any_of_it_is_taken(
    queues: Queues, prompt: MakePrompt, prediction: Prediction, submitted: int
) -> None:
    queues.runs.create(RunSettings(run_id="train", group_size=65_536, prediction=prediction))
    with pytest.raises(TooLarge, match="1966080 jobs fed to run 'train' at once"):
        queues.tasks.submit("train", [prompt(f"p{number}") for number in range(30)])
    queues.tasks.submit("train", [prompt("first")])
    with pytest.raises(Unavailable, match="has 65536 queued jobs already"):
        queues.tasks.submit("train", [prompt("second")])
    assert queues.tasks.submit("train", [prompt("first")]) == [False]
    assert queues.tasks.prompts("train") == ["first"]
    assert queues.runs.read("train").counters.jobs_submitted == submitted


def test_a_closed_run_leaves_in_slices_and_every_job_is_somewhere_all_the_while(
    queues: Queues, server: AgentServer, prompt: MakePrompt
) -> None:
    run_of_groups(queues, msgspec.structs.replace(server, slots=8), prompt, 10)
    leases = [each.lease for each in queues.leases.lease(8)]
    report(queues, completed(leases[0]))
    queues.events.close("train")
    queues.events.conclude("train", conclusion_of(queues.events.pending("train")))
    assert_conserved(queues)
    stopped: list[Lease] = []
    while queues.runs.read("train").sweeping:
        # Whoever collects may die here: the next one goes on.
        slice_of_them = queues.events.sweep("train", 3).stop
        assert len(slice_of_them) <= 3
        stopped += slice_of_them
        assert_conserved(queues)
    assert sorted(map(str, stopped)) == sorted(map(str, leases[1:]))
    counters = queues.runs.read("train").counters
    assert (counters.jobs_accepted, counters.jobs_dropped) == (1, 19)
    assert queues.events.sweep("train").stop == ()


def test_a_collector_that_starts_sweeps_what_another_one_closed(
    queues: Queues, server: AgentServer, prompt: MakePrompt
) -> None:
    run_of_groups(queues, server, prompt, FEW)
    queues.events.close("train")
    queues.events.conclude("train", conclusion_of(queues.events.pending("train")))
    moved: list[Moved] = []
    Collector(queues.events, queues.runs, moved.append).collect("train")
    run = queues.runs.read("train")
    assert (run.sweeping, run.counters.jobs_queued, run.counters.jobs_dropped) == (False, 0, 20)


def test_a_run_is_closed_before_what_waits_of_it_is_concluded(
    queues: Queues, prompt: MakePrompt
) -> None:
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    queues.tasks.submit("train", [prompt(f"p{number}") for number in range(1000)])
    stale = conclusion_of(queues.events.pending("train"))
    queues.events.close("train")
    with pytest.raises(Conflict, match="is closed"):
        queues.tasks.submit("train", [prompt("late")])
    with pytest.raises(Overtaken):
        queues.events.conclude("train", stale)
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    assert queues.runs.read("train").state.closed
    collect(queues)
    assert queues.runs.read("train").counters.jobs_dropped == 2000
    assert_conserved(queues)


def test_a_closed_run_keeps_what_died_of_it_and_nothing_of_its_dataset(
    queues: Queues, server: AgentServer, prompt: MakePrompt, store: "redis.Redis"
) -> None:
    queues.runs.create(RunSettings(run_id="train", group_size=2, max_infra_failures=1))
    queues.servers.register(server)
    queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=2))
    collect(queues)
    report(queues, failed(leased(queues)))
    of_its_row = msgspec.structs.replace(failed(leased(queues)), blame=Blame.ROW)
    report(queues, of_its_row)
    queues.events.close("train")
    collect(queues)
    (dead,) = queues.jobs.dead("train")
    assert dead.attempts[0].reason == "the disk is full"
    prefix = queues.connection.key("run:train:")
    left = {key.decode().removeprefix(prefix) for key in store.scan_iter(f"{prefix}*")}
    kept = {"settings", "sampler", "config", "counts", "news", "settled"}
    assert left - kept == {"dead", "dead_prompts", "history"}


class CountsLooks(Runs):
    """Notes each look at a Run."""

    looks = 0

    def read(self, run_id: str) -> Run:
        self.looks += 1
        return super().read(run_id)


def test_a_deep_queue_wakes_no_trainer_with_each_job_and_each_result(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt
) -> None:
    queues = make_queues(Queues)
    run_of_groups(queues, server, prompt, 40)
    queues.runs.wait_for_news("train", 1)
    for _ in range(5):
        report(queues, completed(leased(queues)))
        collect(queues)
    assert queues.connection.do(lambda r: r.exists(queues.connection.key("run:train:news"))) == 0


def test_many_who_wait_for_a_run_look_at_it_as_often_as_one(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt
) -> None:
    waiters = 5
    queues = make_queues(Queues)
    run_of_groups(queues, server, prompt, 40)
    runs = queues.runs = CountsLooks(queues.connection)
    trainers = Trainers(queues)
    wakes = 10
    with ThreadPoolExecutor(waiters) as threads:
        waits = [
            threads.submit(trainers.run_status, "train", wait_seconds=60.0, batch="b")
            for _ in range(waiters)
        ]
        mark = queues.connection.key("run:train:news")
        for _ in range(wakes):
            queues.connection.do(lambda r: r.rpush(mark, "1"))
            while queues.connection.do(lambda r: r.exists(mark)):
                time.sleep(0.01)
        queues.events.close("train")
        Collector(queues.events, queues.runs, lambda _: None).collect("train")
        for wait in waits:
            assert wait.result(60).batches == ()
    assert runs.looks <= waiters + wakes + 10


def test_a_wait_is_taken_over_when_the_one_who_watched_leaves(
    patient_queues: Queues, server: AgentServer, prompt: MakePrompt
) -> None:
    run_of_groups(patient_queues, server, prompt, 40)
    trainers = Trainers(patient_queues)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(trainers.run_status, "train", wait_seconds=0.2, batch="b").result(30)
        first = threads.submit(trainers.run_status, "train", wait_seconds=0.5, batch="b")
        second = threads.submit(trainers.run_status, "train", wait_seconds=60.0, batch="b")
        assert not first.result(30).batch_ready
        patient_queues.events.close("train")
        Collector(patient_queues.events, patient_queues.runs, lambda _: None).collect("train")
        assert second.result(30).batches == ()


def test_a_batch_that_is_complete_asks_as_much_of_redis_however_many_jobs_are_queued(
    open_run: OpenRun, store: "redis.Redis"
) -> None:
    def cost(groups: int) -> int:
        queues = open_run(groups)
        leased(queues)
        before = calls(store)
        assert len(moved_by(queues, Hold(), Park()).park) == 1
        asked = calls(store) - before
        assert queues.runs.read("train").counters.jobs_carried_over == 2 * groups
        return asked

    few, many = cost(FEW), cost(100 * FEW)
    assert abs(many - few) < 10


def test_many_queued_jobs_that_are_dropped_leave_the_others_in_their_order(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt
) -> None:
    queues = make_queues(Queues)
    run_of_groups(queues, server, prompt, MANY)
    kept = [f"p{number:06}" for number in range(0, MANY, 100)]
    dropped = [name for name in queues.tasks.prompts("train") if name not in kept]
    moved_by(queues, Drop(group_ids=tuple(dropped), why=Why.DISCARDED))
    waiting = [job.job_id for job in queues.jobs.records("train", JobState.QUEUED, MANY)]
    assert waiting == [f"train/{name}/{member}" for name in kept for member in (0, 1)]
    assert queues.runs.read("train").counters.jobs_dropped == 2 * len(dropped)
    assert_conserved(queues)


def test_jobs_that_are_not_queued_leave_a_long_queue_alone(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt, store: "redis.Redis"
) -> None:
    queues = make_queues(Queues)
    run_of_groups(queues, server, prompt, MANY)
    before = calls(store)
    moved_by(queues, Cancel(job_ids=tuple(f"train/p9/{member}" for member in range(200))))
    assert calls(store) - before < 100
    waiting = [job.job_id for job in queues.jobs.records("train", JobState.QUEUED, 3)]
    assert waiting == ["train/p000000/0", "train/p000000/1", "train/p000001/0"]
    assert queues.runs.read("train").counters.jobs_dropped == 0
    assert_conserved(queues)


def test_a_group_that_is_dropped_asks_as_much_of_redis_however_many_members_it_has(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt, store: "redis.Redis"
) -> None:
    def cost(size: int) -> int:
        queues = make_queues(Queues)
        queues.runs.create(RunSettings(run_id="train", group_size=size))
        queues.servers.register(msgspec.structs.replace(server, slots=size))
        queues.tasks.submit("train", [prompt("p0")])
        queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
        collect(queues)
        for _ in range(size):
            report(queues, completed(leased(queues)))
        before = calls(store)
        moved_by(queues, Drop(group_ids=("p0",), why=Why.CONSUMED))
        return calls(store) - before

    assert abs(cost(64) - cost(2)) < 10
