"""Runs share the Slots by their weights: promised by the queues.

Time is made up: the next Job that ends is the one whose made-up end comes first, and the queues are
made to look back on as much more time.
"""

import heapq
import itertools
import math
import random
from collections import Counter, defaultdict
from typing import NamedTuple

import pytest

from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState, Wanted
from rollyard.errors import InvalidMessage, NotFound
from rollyard.messages import (
    AgentServer,
    Assignment,
    Criterion,
    JobState,
    Prompt,
    RunSettings,
    Share,
)
from tests.orchestrator.moves import completed, conclude, decide, report
from tests.queue_fixtures import QueueMaker

WARM_UP_JOBS, JOBS = 400, 1000
CREDIT = 4
"""Slots that the scripts owe a Run at most, and that others owe them."""


class TimedQueues(Queues):
    def pass_time(self, seconds: float) -> None:
        """So much time has passed since the queues last looked at what each Run holds."""
        key = self.connection.key("shares")
        shares = self.connection.do(lambda r: r.hgetall(key))
        earlier = {}
        for run_id, share in shares.items():
            if run_id:
                *rest, as_of = share.split()
                earlier[run_id] = b" ".join((*rest, b"%f" % (float(as_of) - seconds)))
        self.connection.do(lambda r: r.hset(key, mapping=earlier))


def settings_of(run_id: str) -> RunSettings:
    return RunSettings(run_id=run_id, group_size=1, criterion=Criterion.COMPLETE)


class Ending(NamedTuple):
    at: float
    number: int
    assignment: Assignment


class BusySlots:
    """Slots that always have a Job, of Runs whose Jobs take `seconds` on average."""

    def __init__(self, queues: TimedQueues, slots: int) -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        self._queues = queues
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._seconds: dict[str, float] = {}
        self._environments: dict[str, str] = {}
        self._ends: list[Ending] = []
        self._now = 0.0
        self.held = Counter[str]()
        self.spent: defaultdict[str, float] = defaultdict(float)
        """Run -> Slot seconds."""
        self.register("arithmetic", slots)

    def register(self, environment: str, slots: int) -> None:
        """One more agent server, for this environment alone."""
        self._queues.servers.register(
            AgentServer(
                server_id=environment,
                url=f"http://{environment}:1",
                slots=slots,
                environments=(environment,),
            )
        )

    def add(
        self, run_id: str, seconds: float, share: Share, environment: str = "arithmetic"
    ) -> None:
        self._environments[run_id] = environment
        self._queues.runs.create(settings_of(run_id))
        self._queues.runs.share(run_id, share)
        self.open(run_id, seconds)

    def open(self, run_id: str, seconds: float) -> None:
        decide(self._queues, Open(), run_id=run_id)
        self._seconds[run_id] = seconds
        self._feed(run_id, 64)

    def start(self) -> None:
        while leases := self._queues.leases.lease(64):
            for assignment in leases:
                self._begin(assignment)

    def end(self, jobs: int) -> None:
        """So many Jobs end, one after the other, and their Slots have others."""
        for _ in range(jobs):
            at, _, assignment = heapq.heappop(self._ends)
            self._pass_time(at - self._now)
            run_id = assignment.job.run_id
            self.held[run_id] -= 1
            following = report(self._queues, completed(assignment.lease), more=True).assignment
            assert following is not None
            self._begin(following)
            self._feed(run_id, 1)

    def _pass_time(self, seconds: float) -> None:
        self._now += seconds
        for run_id, held in self.held.items():
            self.spent[run_id] += held * seconds
        self._queues.pass_time(seconds)
        self._queues.leases.lend()

    def _begin(self, assignment: Assignment) -> None:
        run_id = assignment.job.run_id
        end = self._now + self._seconds[run_id] * self._random.uniform(0.2, 1.8)
        heapq.heappush(self._ends, Ending(end, next(self._numbers), assignment))
        self.held[run_id] += 1

    def _feed(self, run_id: str, jobs: int) -> None:
        row = {"data_source": self._environments.get(run_id, "arithmetic")}
        numbers = itertools.islice(self._numbers, jobs)
        prompts = [Prompt(prompt_id=f"p{number}", instance=row) for number in numbers]
        self._queues.tasks.submit(run_id, prompts)


@pytest.fixture
def queues(make_queues: QueueMaker) -> TimedQueues:
    return make_queues(TimedQueues, lease_seconds=3600.0)


CASES = {
    "weights of 1, 1 and 2, and Jobs as long": (64, (1, 1, 2), (60, 60, 60)),
    "Jobs of one run are twenty times as long": (64, (1, 1, 2), (10, 200, 50)),
    "more runs than slots": (3, (1, 1, 1, 1, 1), (5, 50, 20, 5, 10)),
    "one slot, and jobs of ten minutes beside those of one": (1, (1, 1), (600, 60)),
    "a run of more weight than there are slots": (3, (1, 1, 5), (60, 60, 60)),
    "weights that are large": (16, (100, 300), (30, 60)),
    "jobs of half an hour": (16, (1, 2, 1), (1800, 60, 600)),
    "forty runs": (16, (1,) * 40, (30,) * 40),
}


@pytest.mark.parametrize(("slots", "weights", "seconds"), CASES.values(), ids=CASES)
def test_runs_that_always_wait_get_slot_seconds_by_their_weights(
    queues: TimedQueues, slots: int, weights: tuple[int, ...], seconds: tuple[int, ...]
) -> None:
    busy = BusySlots(queues, slots)
    for number, (weight, each) in enumerate(zip(weights, seconds, strict=True)):
        busy.add(f"run-{number}", each, Share(weight=weight))
    busy.start()
    busy.end(WARM_UP_JOBS)
    busy.spent.clear()
    busy.end(JOBS)
    whole = sum(busy.spent.values())
    for number, weight in enumerate(weights):
        part = busy.spent[f"run-{number}"] / whole
        assert part == pytest.approx(weight / sum(weights), rel=0.05), busy.spent


@pytest.mark.parametrize(("slots", "weights"), [(4, (1, 3)), (1, (1, 1, 1))])
def test_runs_share_the_slots_of_few_servers_whatever_another_run_holds_on_others(
    queues: TimedQueues, slots: int, weights: tuple[int, ...]
) -> None:
    busy = BusySlots(queues, 6 * slots)
    busy.register("gym", slots)
    busy.add("elsewhere", 60, Share())
    for number, weight in enumerate(weights):
        busy.add(f"run-{number}", 60, Share(weight=weight), "gym")
    busy.start()
    busy.end(WARM_UP_JOBS)
    busy.spent.clear()
    busy.end(JOBS)
    del busy.spent["elsewhere"]
    whole = sum(busy.spent.values())
    for number, weight in enumerate(weights):
        part = busy.spent[f"run-{number}"] / whole
        assert part == pytest.approx(weight / sum(weights), rel=0.1), busy.spent


@pytest.mark.parametrize(("slots", "weights"), [(16, (1, 2)), (4, (1, 1, 1, 1, 1))])
def test_a_run_of_little_weight_with_a_long_job_changes_nothing_between_others(
    queues: TimedQueues, slots: int, weights: tuple[int, ...]
) -> None:
    busy = BusySlots(queues, slots)
    busy.add("background", 1e6, Share(weight=0.01, max_slots=1))
    busy.start()
    for number, weight in enumerate(weights):
        busy.add(f"run-{number}", 60, Share(weight=weight))
    busy.start()
    busy.end(WARM_UP_JOBS)
    busy.spent.clear()
    busy.end(JOBS)
    del busy.spent["background"]
    whole = sum(busy.spent.values())
    for number, weight in enumerate(weights):
        part = busy.spent[f"run-{number}"] / whole
        assert part == pytest.approx(weight / sum(weights), rel=0.05), busy.spent


def test_a_run_that_comes_late_gets_the_next_slots_until_it_has_its_share(
    queues: TimedQueues,
) -> None:
    busy = BusySlots(queues, 16)
    busy.add("first", 60, Share())
    busy.start()
    busy.end(500)
    busy.add("late", 600, Share())
    first = []
    for _ in range(8):
        busy.end(1)
        first.append(busy.held["late"])
    assert first == list(range(1, 9))
    busy.end(200)
    assert busy.held["late"] == pytest.approx(8, abs=1)


def test_a_run_that_had_nothing_to_do_for_a_day_is_owed_a_few_slots_at_most(
    queues: TimedQueues,
) -> None:
    queues.runs.create(settings_of("idle"))
    busy = BusySlots(queues, 32)
    busy.add("busy", 60, Share())
    busy.start()
    for _ in range(24):
        queues.pass_time(3600.0)
        busy.end(1)
    busy.open("idle", 60)
    held = []
    for _ in range(200):
        busy.end(1)
        held.append(busy.held["idle"])
    assert 16 < max(held) <= 16 + CREDIT


def test_a_run_that_waited_for_a_day_is_owed_a_few_slots_at_most(queues: TimedQueues) -> None:
    busy = BusySlots(queues, 32)
    busy.add("busy", 60, Share())
    busy.start()
    busy.add("waiting", 60, Share())
    queues.pass_time(86_400.0)
    held = []
    for _ in range(200):
        busy.end(1)
        held.append(busy.held["waiting"])
    assert 16 < max(held) <= 16 + CREDIT


def test_a_run_holds_no_more_slots_than_it_may(queues: TimedQueues) -> None:
    busy = BusySlots(queues, 8)
    busy.add("limited", 30, Share(weight=100, max_slots=2))
    busy.add("other", 30, Share())
    busy.start()
    for _ in range(50):
        busy.end(1)
        assert busy.held["limited"] == 2


def test_slots_stay_free_rather_than_that_a_run_holds_more_than_it_may(
    queues: TimedQueues,
) -> None:
    busy = BusySlots(queues, 8)
    busy.add("limited", 30, Share(max_slots=3))
    wanted = Wanted(batch_id="b", requested_batch_size=1, weight_version=0)
    conclude(queues, state=SamplerState(wanted=[wanted]), run_id="limited")
    busy.start()
    assert busy.held["limited"] == 3
    (queued,) = queues.jobs.records("limited", JobState.QUEUED, 1)
    why = Operators(queues).why
    said = "its run holds 3 slots, and may hold 3 at most: an operator said so"
    assert why(queued.job_id).reason.startswith(said)
    assert said in why("limited").reason
    queues.runs.share("limited", Share())
    busy.start()
    assert busy.held["limited"] == 8


def test_a_run_that_may_hold_no_slot_pauses_and_goes_on(queues: TimedQueues) -> None:
    busy = BusySlots(queues, 2)
    busy.add("paused", 30, Share(max_slots=0))
    busy.start()
    assert busy.held["paused"] == 0
    queues.runs.share("paused", Share(max_slots=1))
    busy.start()
    assert busy.held["paused"] == 1


def test_what_an_operator_said_is_in_the_runs_status_until_the_run_is_forgotten(
    queues: TimedQueues,
) -> None:
    queues.runs.create(settings_of("train"))
    assert queues.runs.read("train").share == Share()
    said = Share(weight=2.5, max_slots=12)
    queues.runs.share("train", said)
    queues.runs.create(settings_of("train"))
    assert queues.runs.read("train").share == said


def test_a_share_of_a_run_that_is_not_there_is_refused(queues: TimedQueues) -> None:
    with pytest.raises(NotFound, match="there is no run 'none'"):
        queues.runs.share("none", Share(weight=2))


@pytest.mark.parametrize("weight", [0, -1, 5e-324, 1e-9, 1e7, math.nan, math.inf])
def test_a_weight_that_means_nothing_is_refused(weight: float) -> None:
    with pytest.raises(InvalidMessage, match=r"weight must be from 0\.001 to 1000000"):
        Share(weight=weight)
