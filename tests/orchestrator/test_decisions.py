"""Decisions about members and Batches, carried out by the queues."""

import time
import uuid
from array import array
from collections.abc import Callable

import msgspec
import pytest
import redis

from orchestrator.events import BatchRequested, PromptFed, ResultAccepted, Tried
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import (
    Cancel,
    Close,
    Deliver,
    Drop,
    Enqueue,
    Open,
    Remember,
    Retract,
    Why,
)
from orchestrator.sampling.state import SamplerState
from rollyard.errors import NotFound
from rollyard.messages import (
    AgentServer,
    AttemptOutcome,
    BatchReport,
    Bias,
    Grade,
    Lease,
    Outcome,
    Prediction,
    Prompt,
    Receipt,
    Result,
    RunSettings,
    Sequence,
    SlotSeconds,
    Timings,
    Trajectory,
    WeightSpan,
)
from rollyard.unpacking import unpacked_group
from tests.orchestrator.moves import (
    assert_conserved,
    completed,
    conclude,
    decide,
    delivery,
    is_stale,
    leased,
    moved_by,
    report,
)
from tests.queue_fixtures import QueueMaker, publish

MakePrompt = Callable[[str], Prompt]


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    return patient_queues


def opened(queues: Queues, server: AgentServer, **settings: object) -> Queues:
    """An open Run and one server with two Slots."""
    queues.runs.create(RunSettings(run_id="train", group_size=2, **settings))  # type: ignore[arg-type]
    queues.servers.register(server)
    decide(queues, Open())
    return queues


@pytest.fixture
def open_queues(queues: Queues, server: AgentServer, prompt: MakePrompt) -> Queues:
    """And one Group of two Jobs."""
    opened(queues, server).tasks.submit("train", [prompt("p0")])
    return queues


def test_a_group_begins_with_its_first_members_and_the_others_wait_first(
    queues: Queues, server: AgentServer, prompt: MakePrompt
) -> None:
    opened(queues, server, prediction=Prediction(stage_members=1, redundant_members=1))
    queues.tasks.submit("train", [prompt("p0"), prompt("p1")])
    counters = queues.runs.read("train").counters
    assert (counters.groups_fed, counters.jobs_submitted, counters.jobs_queued) == (2, 2, 2)
    decide(queues, Enqueue(job_ids=("train/p1/1", "train/p1/2")))
    assert [leased(queues).job_id for _ in range(2)] == ["train/p1/1", "train/p1/2"]
    assert queues.runs.read("train").counters.jobs_submitted == 4
    assert_conserved(queues)
    decide(queues, Drop(group_ids=("p1",), why=Why.FILTERED))
    assert queues.runs.read("train").counters.jobs_dropped == 3
    assert_conserved(queues)


def test_members_that_are_added_are_dispatched_though_nothing_waited(
    queues: Queues, server: AgentServer, prompt: MakePrompt
) -> None:
    opened(queues, server, prediction=Prediction(skip_by_history=True))
    queues.tasks.submit("train", [prompt("p0")])
    assert queues.leases.lease() == []
    decide(queues, Enqueue(job_ids=("train/p0/0",)))
    assert leased(queues).job_id == "train/p0/0"


def test_a_result_is_taken_back_and_its_job_begins_again_first(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    for _ in range(2):
        report(open_queues, completed(leased(open_queues), 0.5))
    moved = moved_by(open_queues, Retract(job_ids=("train/p0/0", "train/p0/1")))
    assert (moved.stop, moved.park, moved.resume) == ((), (), ())
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_accepted, counters.jobs_queued, counters.rewards_sum) == (0, 4, 0.0)
    assert_conserved(open_queues)
    withdrawn = open_queues.jobs.record("train/p0/0")
    assert [a.outcome for a in withdrawn.attempts] == [AttemptOutcome.WITHDRAWN]
    _, result = open_queues.jobs.contents("train/p0/0")
    assert result is None
    first, second = leased(open_queues), leased(open_queues)
    assert [first.job_id, second.job_id] == ["train/p0/0", "train/p0/1"]
    assert (first.attempt, second.attempt) == (2, 2)
    assert report(open_queues, completed(first)).receipt is Receipt.ACCEPTED


def test_an_attempt_whose_result_was_taken_back_is_stale(open_queues: Queues) -> None:
    old = leased(open_queues)
    report(open_queues, completed(old))
    decide(open_queues, Retract(job_ids=(old.job_id,)))
    assert is_stale(open_queues, completed(old))
    assert open_queues.runs.read("train").counters.jobs_accepted == 0


def test_a_result_that_was_taken_back_is_in_no_batch(open_queues: Queues) -> None:
    for _ in range(2):
        report(open_queues, completed(leased(open_queues)))
    decide(open_queues, Retract(job_ids=("train/p0/0",)), delivery("b", p0=(1,)))
    (group,) = map(unpacked_group, open_queues.batches.groups("train", "b"))
    assert [result.lease.job_id for result in group.results] == ["train/p0/1"]
    report(open_queues, completed(leased(open_queues), 0.25))
    decide(open_queues, delivery("c", p0=(0,)))
    (group,) = map(unpacked_group, open_queues.batches.groups("train", "c"))
    assert [result.reward for result in group.results] == [0.25]


def test_members_that_are_not_wanted_are_stopped_or_never_begin(open_queues: Queues) -> None:
    lease = leased(open_queues)
    assert decide(open_queues, Cancel(job_ids=("train/p0/0", "train/p0/1"))) == [lease]
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_dropped, counters.jobs_queued, counters.jobs_leased) == (2, 0, 0)
    assert_conserved(open_queues)
    assert is_stale(open_queues, completed(lease))


def test_a_member_that_was_quicker_than_its_cancellation_keeps_its_result(
    open_queues: Queues,
) -> None:
    report(open_queues, completed(leased(open_queues)))
    decide(open_queues, Cancel(job_ids=("train/p0/0",)))
    counters = open_queues.runs.read("train").counters
    assert (counters.jobs_accepted, counters.jobs_dropped) == (1, 0)


def row(prompt_id: str, **instance: object) -> Prompt:
    return Prompt(prompt_id=prompt_id, instance={"data_source": "arithmetic", **instance})


@pytest.mark.parametrize(
    "instance", [{"id": 7, "question": "1+1"}, {"question": "1+1", "answer": [2]}]
)
def test_a_prompt_is_fed_with_what_its_row_came_to(
    queues: Queues, server: AgentServer, instance: dict[str, object]
) -> None:
    opened(queues, server, prediction=Prediction(skip_by_history=True))
    queues.tasks.submit("train", [row("p0", **instance)])
    (first,) = queues.connection.ask(queues.events.oldest("train"))
    assert isinstance(first, PromptFed)
    assert first.row
    assert first.tried is None
    tried = Tried(solved=1.0, failed=2.5, batches=3)
    decide(queues, Remember(row=first.row, tried=tried))
    queues.tasks.submit("train", [row("p1", **dict(reversed(instance.items()))), row("p2", id=8)])
    again, other = queues.connection.ask(queues.events.oldest("train"))
    assert again == PromptFed(group_id="p1", row=first.row, tried=tried)
    assert isinstance(other, PromptFed)
    assert other.row not in ("", first.row)
    assert other.tried is None


def test_no_row_is_named_where_no_history_is_kept(open_queues: Queues) -> None:
    assert open_queues.connection.ask(open_queues.events.oldest("train")) == [
        PromptFed(group_id="p0")
    ]


def spans(lease: Lease, *versions: int, earlier: tuple[Sequence, ...] = ()) -> Result:
    """A completed Result whose tokens are of these weight versions, 0.5 seconds in each stage."""
    trajectory = Trajectory(
        earlier=earlier,
        token_ids=array("i", versions),
        loss_mask=array("b", [1] * len(versions)),
        logprobs=array("f", [-0.5] * len(versions)),
        weight_spans=tuple(
            WeightSpan(version=version, start=at, end=at + 1) for at, version in enumerate(versions)
        ),
        turns=(),
        messages=(),
    )
    return Result(
        lease=lease,
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=1.0),
        trajectory=trajectory,
        timings=Timings(init_seconds=0.5, run_seconds=0.5, eval_seconds=0.5),
    )


def test_a_result_is_as_old_as_the_oldest_token_of_its_first_sequence(open_queues: Queues) -> None:
    decide(open_queues)
    lease = leased(open_queues)
    first = spans(lease, 3, 5).trajectory
    assert first is not None
    open_queues.leases.report([spans(lease, 5, 6, earlier=(first,))])
    (event,) = open_queues.connection.ask(open_queues.events.oldest("train"))
    assert isinstance(event, ResultAccepted)
    assert event.weight_version == 3


def test_a_result_is_as_old_as_its_oldest_token_or_as_its_attempt(open_queues: Queues) -> None:
    decide(open_queues)
    assert open_queues.weights.version() == 0
    publish(open_queues, 4)
    told, untold = leased(open_queues), leased(open_queues)
    assert open_queues.leases.begun("train") == {"train/p0/0": 4, "train/p0/1": 4}
    publish(open_queues, 6)
    open_queues.leases.report([spans(told, 5, 6), spans(untold)])
    assert open_queues.leases.begun("train") == {}
    assert open_queues.connection.ask(open_queues.events.oldest("train")) == [
        ResultAccepted(job_id="train/p0/0", reward=1.0, weight_version=5, seconds=1.5),
        ResultAccepted(job_id="train/p0/1", reward=1.0, weight_version=4, seconds=1.5),
    ]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e308, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_not_believed(open_queues: Queues, seconds: float) -> None:
    decide(open_queues)
    timings = Timings(run_seconds=seconds)
    open_queues.leases.report(
        [msgspec.structs.replace(completed(leased(open_queues)), timings=timings)]
    )
    (accepted,) = open_queues.connection.ask(open_queues.events.oldest("train"))
    assert isinstance(accepted, ResultAccepted)
    assert 0.0 <= accepted.seconds < 60.0


def test_several_batches_are_kept_until_each_is_acknowledged(
    open_queues: Queues, prompt: MakePrompt
) -> None:
    open_queues.tasks.submit("train", [prompt("p1")])
    for _ in range(4):
        report(open_queues, completed(leased(open_queues)))
    decide(open_queues, delivery("b", p0=(1,)), delivery("c", p1=(0, 1), p0=(0,)))
    assert [group.group_id for group in open_queues.batches.groups("train", "c")] == ["p1", "p0"]
    state = open_queues.runs.read("train").state
    del state.delivered["c"]
    conclude(open_queues, events=0, state=state)
    (group,) = map(unpacked_group, open_queues.batches.groups("train", "b"))
    assert [result.lease.job_id for result in group.results] == ["train/p0/1"]
    for forgotten in (open_queues.batches.groups, open_queues.batches.report):
        with pytest.raises(NotFound):
            forgotten("train", "c")


REPORT = BatchReport(
    weight_version=3,
    slot_seconds=SlotSeconds(useful=2.0, filtered=0.5, surplus=4.0, cancelled=0.25, failed=1.0),
    bias=Bias(trajectories=2, mean_seconds=1.0, ages={0: 1, 1: 1}),
)


def test_a_batch_keeps_its_report_and_the_run_its_sums(open_queues: Queues) -> None:
    began = time.monotonic()
    decide(open_queues, Open())
    for _ in range(2):
        report(open_queues, completed(leased(open_queues)))
    groups = delivery("b", p0=(0, 1)).groups
    decide(open_queues, Deliver(batch_id="b", groups=groups, report=REPORT))
    kept = open_queues.batches.report("train", "b")
    assert open_queues.runs.read("train").last_report == kept
    assert (kept.weight_version, kept.bias, kept.slots) == (3, REPORT.bias, 2)
    assert 0 <= kept.seconds <= time.monotonic() - began + 0.001
    spent = kept.slot_seconds
    assert spent == msgspec.structs.replace(REPORT.slot_seconds, idle=spent.idle)
    assert 0 <= spent.idle <= 2 * kept.seconds + 0.001
    decide(open_queues, Deliver(batch_id="c", groups=groups, report=REPORT))
    total = open_queues.runs.read("train").counters.slot_seconds
    assert (total.useful, total.cancelled, total.surplus) == (4.0, 0.5, 4.0)


class AgedQueues(Queues):
    """Queues in which time can be made up."""

    def age(self, *leases: Lease, seconds: float, window_seconds: float) -> None:
        """As if these Leases, and the window of the Batch, had begun so much earlier."""
        for lease in leases:
            self._put_back("times", lease.job_id, seconds)
        self._put_back("config", "window", window_seconds)

    def _put_back(self, name: str, field: str, seconds: float) -> None:
        key = self.connection.of_run("train", name)
        began, rest = self.connection.do(lambda r: r.hget(key, field)).split()
        self.connection.do(lambda r: r.hset(key, field, b"%f %s" % (float(began) - seconds, rest)))


def test_slots_are_idle_while_no_job_runs_on_them_in_the_window_of_a_batch(
    make_queues: QueueMaker, server: AgentServer, prompt: MakePrompt
) -> None:
    queues = make_queues(AgedQueues, lease_seconds=1000)
    opened(queues, server).tasks.submit("train", [prompt("p0")])
    first, second = leased(queues), leased(queues)
    queues.age(first, second, seconds=9, window_seconds=10)
    measured = msgspec.structs.replace(completed(first), timings=Timings(run_seconds=3.0))
    report(queues, measured)
    decide(queues, delivery("b", p0=(0,)))
    assert_idle(queues, "b", seconds=10, idle=2 * 10 - 3 - 9)
    queues.age(second, seconds=1, window_seconds=1)
    decide(queues, delivery("c", p0=(0,)))
    assert_idle(queues, "c", seconds=1, idle=1)


def assert_idle(queues: Queues, batch_id: str, *, seconds: float, idle: float) -> None:
    """As much, and no more than what the test itself took of both Slots."""
    kept = queues.batches.report("train", batch_id)
    assert kept.slots == 2
    took = kept.seconds - seconds
    assert took >= -0.01
    assert -0.01 <= kept.slot_seconds.idle - idle <= 2 * took + 0.01


def test_a_prompt_is_the_runs_until_it_is_dropped(open_queues: Queues, prompt: MakePrompt) -> None:
    """Also before the sampler has heard of it."""
    open_queues.tasks.submit("train", [prompt("p1")])
    assert open_queues.tasks.prompts("train") == ["p0", "p1"]
    open_queues.events.tell("train", BatchRequested(batch_id="x", requested_batch_size=1))
    decide(open_queues, Drop(group_ids=("p0",), why=Why.CONSUMED))
    assert open_queues.tasks.prompts("train") == ["p1"]
    with pytest.raises(NotFound):
        open_queues.tasks.prompts("nowhere")


def test_a_closed_run_keeps_nothing_of_its_dataset(admin_redis_url: str) -> None:
    prefix = f"rollyard:test:{uuid.uuid4().hex}:"
    queues = Queues(admin_redis_url, prefix=prefix)
    queues.runs.create(RunSettings(run_id="train"))
    remember = Remember(row="row", tried=Tried(solved=1.0))
    conclude(queues, remember, events=0, state=SamplerState())
    with redis.Redis.from_url(admin_redis_url) as client:
        assert client.exists(f"{prefix}run:train:rows")
        conclude(queues, Close(), events=0, state=SamplerState(closed=True))
        queues.events.close("train")
        queues.events.sweep("train")
        assert not client.exists(f"{prefix}run:train:rows")
