"""Whatever order results, losses, cancels, deaths, weights, requests and crashes come in.

`ROLLYARD_INTERLEAVINGS` sets the number of seeds; `make interleavings` tries all 10,000.
"""

import os
import random

import pytest

from orchestrator.sampling.decisions import Why
from orchestrator.sampling.sampler import Sampler, prompts_wanted
from orchestrator.sampling.state import SamplerState
from rollyard import codec
from rollyard.messages import Criterion, Prediction, Recycling, RunSettings, Unit
from tests.orchestrator.sampling.small_queues import SmallQueues

SEEDS = int(os.environ.get("ROLLYARD_INTERLEAVINGS", "160"))
SHARDS = 8
BATCHES = 6
STEPS = 200_000
"""Most need a few hundred; in launch order, with events heard late, some need 25,000."""


def any_settings(draw: random.Random) -> RunSettings:
    unit = draw.choice([Unit.GROUPS, Unit.GROUPS, Unit.TRAJECTORIES])
    alone = unit is Unit.TRAJECTORIES
    size = draw.randint(2, 4)
    prediction = Prediction(
        skip_by_history=not alone and draw.random() < 0.3,
        stage_members=0 if alone else draw.choice([0, 0, 1, 2]),
        redundant_members=0 if alone else draw.choice([0, 0, 1, 2]),
        launch_order=not alone and draw.random() < 0.2,
    )
    criteria = [Criterion.ANY_SOLVED] if alone else [Criterion.REWARD_SPREAD, *Criterion]
    return RunSettings(
        run_id="r",
        group_size=size,
        unit=unit,
        criterion=draw.choice(criteria),
        recycling=draw.choice([Recycling.RESUME, Recycling.RESUME, *Recycling]),
        max_staleness=draw.choice([0, 1, 1, 2]),
        prediction=prediction,
        look_ahead_jobs=draw.randint(0, 3),
    )


class Trainer:
    """Requests, trains and acknowledges at any time that it may."""

    def __init__(self, queues: SmallQueues, draw: random.Random) -> None:
        self.queues = queues
        self.draw = draw
        self.trained: list[str] = []

    def step(self) -> None:
        queues, most = self.queues, self.queues.settings.max_staleness + 1
        outstanding = len(queues.requested) - len(self.trained)
        if outstanding < most and len(queues.requested) < BATCHES and self.draw.random() < 0.5:
            queues.request(self.draw.randint(1, 3), ahead=outstanding)
        elif queues.delivered and self.draw.random() < 0.7:
            self.trained.append(queues.delivered[0])
            queues.version += 1
            queues.acknowledge(queues.delivered[0])


def step(queues: SmallQueues, trainer: Trainer, draw: random.Random) -> None:
    working = sorted(set(queues.running) - queues.parked)
    settings, state = queues.settings, queues.sampler.state
    match draw.choices(range(8), weights=[30, 30, 12, 3, 1, 1, 8, 3])[0]:
        case 0:
            free = queues.slots - len(queues.running)
            queued = len(queues.queued)
            if prompts_wanted(settings, state, queued_jobs=queued, free_slots=free):
                queues.feed()
            queues.lease()
        case 1 if working:
            queues.finish(draw.choice(working), float(draw.random() < 0.4))
        case 2:
            queues.conclude(draw.randint(1, 4))
        case 3 if queues.running:
            queues.lose(draw.choice(sorted(queues.running)))
        case 4 if working:
            queues.die(draw.choice(working))
        case 5 if queues.running:
            queues.cancel(draw.choice(sorted(queues.running)))
        case 6:
            trainer.step()
        case 7:  # a new collector: all it knows is what was stored
            stored = codec.encode(state)
            queues.sampler = Sampler(settings, codec.decode(stored, SamplerState))


def play(seed: int) -> SmallQueues:
    draw = random.Random(seed)
    queues = SmallQueues(any_settings(draw), draw)
    trainer = Trainer(queues, draw)
    for _ in range(STEPS):
        step(queues, trainer, draw)
        if len(trainer.trained) == BATCHES:
            break
    else:
        raise AssertionError(f"stuck: {queues.sampler.state}")
    while queues.events:
        queues.conclude()
    return queues


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_interleaving_gives_exact_batches_and_each_member_one_fate(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        try:
            queues = play(seed)
            assert_nothing_is_lost_or_repeated(queues)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def assert_nothing_is_lost_or_repeated(queues: SmallQueues) -> None:
    state = queues.sampler.state
    members = [
        (chosen.group_id, member)
        for batch in queues.batches.values()
        for chosen in batch
        for member in chosen.members
    ]
    assert len(members) == len(set(members)), "a member was delivered twice"
    assert set(queues.batches) == set(queues.requested), "a batch was never delivered"
    alive = {name for name, why in queues.groups.items() if why is None}
    assert alive == {*state.open, *state.complete}, "a prompt was lost, or its group forgotten"
    fates = [why for why in queues.groups.values() if why is not None]
    assert fates.count(Why.SKIPPED) == state.groups_skipped
    assert fates.count(Why.CUT_SHORT) == state.groups_cut_short
    assert fates.count(Why.FILTERED) == state.groups_filtered
    for name, group in state.open.items():
        for job in (queues._jobs(name)[member] for member in group.unfinished()):
            assert job in queues.queued or job in queues.running, f"nobody will ever run {job}"
