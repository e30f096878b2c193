"""Fault 20 of the fault catalogue in docs/reliability.md: Results arrive as the threshold is met.

Every Batch has exactly the Groups requested; who wins late is in the next Batch or surplus, once.
Seeded interleavings of workers, two collectors and a trainer, call by call.
"""

import random
from collections import Counter

import pytest

from chaos import work
from orchestrator.collector import Collector
from orchestrator.events import (
    AnyEvent,
    BatchAcknowledged,
    BatchRequested,
    PromptFed,
    ResultAccepted,
)
from orchestrator.ids import job_id
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Deliver
from orchestrator.sampling.sampler import Sampler
from orchestrator.sampling.state import SamplerState
from rollyard.messages import AgentServer, Prompt, Receipt, RunSettings
from tests.faults import moves
from tests.faults.interleaving import for_each_seed, interleave, one_by_one
from tests.faults.scale import scaled, timeout_seconds
from tests.queue_fixtures import QueueMaker

RUN, GROUPS, GROUP_SIZE, BATCH_SIZE = "train", 8, 2, 2
WORKERS, SLOTS = 3, 4
SETTINGS = RunSettings(run_id=RUN, group_size=GROUP_SIZE)
SEEDS = 1000


class Race:
    """One interleaving: what every Job is worth is known before it runs."""

    def __init__(self, queues: Queues, seed: int) -> None:
        self.seed = seed
        self.queues = queues
        draw = random.Random(f"rewards {seed}")
        self.groups = [f"g{number}" for number in range(GROUPS)]
        self.rewards = {
            job_id(RUN, group, member): float(draw.random() < 0.5)
            for group in self.groups
            for member in range(GROUP_SIZE)
        }
        self.receipts: Counter[tuple[str, Receipt]] = Counter()
        self.batches: list[list[str]] = []
        self.over = False
        self._turns = one_by_one(queues)

    def effective(self) -> set[str]:
        def rewards_of(group: str) -> set[float]:
            return {self.rewards[job_id(RUN, group, member)] for member in range(GROUP_SIZE)}

        return {group for group in self.groups if len(rewards_of(group)) > 1}

    def run(self) -> None:
        self.queues.runs.create(SETTINGS)
        server = AgentServer(server_id="a", url="http://x", slots=SLOTS, environments=("chaos",))
        self.queues.servers.register(server)
        collectors = [self._collect] * 2
        interleave(self.seed, self._train, self._feed, *collectors, *[self._work] * WORKERS)

    def _work(self) -> None:
        while not self.over:
            assignment = moves.lease(self._turns)
            if assignment is not None:
                job = assignment.lease.job_id
                result = moves.completed(assignment, self.rewards[job])
                self.receipts[job, moves.report(self._turns, result)] += 1

    def _collect(self) -> None:
        collector = Collector(self._turns.events, self._turns.runs, lambda _: None)
        while not self.over:
            collector.collect(RUN)

    def _feed(self) -> None:
        for group in self.groups:
            prompt = Prompt(prompt_id=group, instance={"data_source": work.DATA_SOURCE})
            moves.submit(self._turns, RUN, prompt)

    def _train(self) -> None:
        for number in range(len(self.effective()) // BATCH_SIZE):
            self._request(f"b{number}", BATCH_SIZE)
            while not self._turns.runs.read(RUN).state.delivered:
                pass
            groups = self._turns.batches.groups(RUN, f"b{number}")
            self.batches.append([group.group_id for group in groups])
            self._turns.events.tell(RUN, BatchAcknowledged(batch_id=f"b{number}"))
            while self._turns.runs.read(RUN).state.delivered:
                pass
        self._request("all the rest", GROUPS)  # is never met, so that every Job runs
        while not self._all_ran():
            pass
        self.over = True

    def _request(self, batch_id: str, size: int) -> None:
        self._turns.events.tell(RUN, BatchRequested(batch_id=batch_id, requested_batch_size=size))

    def _all_ran(self) -> bool:
        run = self._turns.runs.read(RUN)
        fed = run.counters.jobs_submitted == len(self.rewards)
        return fed and not (
            run.counters.jobs_queued or run.counters.jobs_leased or run.events_waiting
        )


def assert_every_winner_is_somewhere_once(race: Race) -> None:
    run = race.queues.runs.read(RUN)
    assert all(len(batch) == BATCH_SIZE for batch in race.batches)
    ready = [chosen.group_id for chosen in run.state.ready]
    places = Counter(group for batch in (*race.batches, ready) for group in batch)
    assert places == Counter(race.effective())
    accepted = {job: race.receipts[job, Receipt.ACCEPTED] for job in race.rewards}
    assert set(accepted.values()) == {1}
    assert run.counters.jobs_accepted == run.counters.jobs_submitted == len(race.rewards)
    assert run.counters.groups_filtered == GROUPS - len(race.effective())


def check(queues: Queues, seed: int) -> None:
    race = Race(queues, seed)
    race.run()
    assert_every_winner_is_somewhere_once(race)


@pytest.mark.timeout(timeout_seconds(900))
def test_batches_are_exact_however_results_and_collectors_interleave(
    make_queues: QueueMaker,
) -> None:
    for_each_seed(
        scaled(50, SEEDS), lambda seed: check(make_queues(Queues, lease_seconds=60), seed)
    )


def test_the_sampler_delivers_exact_batches_whatever_the_order_of_events() -> None:
    for_each_seed(SEEDS, check_sampler)


def check_sampler(seed: int) -> None:
    draw, sampler = random.Random(seed), Sampler(SETTINGS, SamplerState())
    delivered: list[tuple[str, ...]] = []
    pending = shuffled_events(draw)
    while pending:
        for decision in sampler.handle(pending.pop(0)):
            if isinstance(decision, Deliver):
                delivered.append(tuple(chosen.group_id for chosen in decision.groups))
                pending.insert(
                    draw.randint(0, len(pending)), BatchAcknowledged(batch_id=decision.batch_id)
                )
        if not sampler.state.outstanding:
            request = BatchRequested(batch_id=f"b{len(delivered)}", requested_batch_size=BATCH_SIZE)
            pending.insert(draw.randint(0, len(pending)), request)
            if pending == [request]:
                break
    assert all(len(batch) == BATCH_SIZE for batch in delivered)
    ready = [chosen.group_id for chosen in sampler.state.ready]
    places = Counter(group for batch in (*delivered, ready) for group in batch)
    assert places == Counter(f"g{number}" for number in range(GROUPS))


def shuffled_events(draw: random.Random) -> list[AnyEvent]:
    """Every Group fed, and then its Results, in any order."""
    events: list[AnyEvent] = []
    for number in range(GROUPS):
        group, place = f"g{number}", draw.randint(0, len(events))
        events.insert(place, PromptFed(group_id=group))
        for member in range(GROUP_SIZE):
            result = ResultAccepted(job_id=job_id(RUN, group, member), reward=float(member))
            events.insert(draw.randint(place + 1, len(events)), result)
    return events
