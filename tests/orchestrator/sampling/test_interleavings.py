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
from tests.orchestrator.sampling.yard import SmallYard

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

    def __init__(self, yard: SmallYard, draw: random.Random) -> None:
        self.yard = yard
        self.draw = draw
        self.trained: list[str] = []

    def step(self) -> None:
        yard, most = self.yard, self.yard.settings.max_staleness + 1
        outstanding = len(yard.requested) - len(self.trained)
        if outstanding < most and len(yard.requested) < BATCHES and self.draw.random() < 0.5:
            yard.request(self.draw.randint(1, 3), ahead=outstanding)
        elif yard.delivered and self.draw.random() < 0.7:
            self.trained.append(yard.delivered[0])
            yard.version += 1
            yard.acknowledge(yard.delivered[0])


def step(yard: SmallYard, trainer: Trainer, draw: random.Random) -> None:
    working = sorted(set(yard.running) - yard.parked)
    settings, state = yard.settings, yard.sampler.state
    match draw.choices(range(8), weights=[30, 30, 12, 3, 1, 1, 8, 3])[0]:
        case 0:
            free = yard.slots - len(yard.running)
            queued = len(yard.queued)
            if prompts_wanted(settings, state, queued_jobs=queued, free_slots=free):
                yard.feed()
            yard.lease()
        case 1 if working:
            yard.finish(draw.choice(working), float(draw.random() < 0.4))
        case 2:
            yard.conclude(draw.randint(1, 4))
        case 3 if yard.running:
            yard.lose(draw.choice(sorted(yard.running)))
        case 4 if working:
            yard.die(draw.choice(working))
        case 5 if yard.running:
            yard.cancel(draw.choice(sorted(yard.running)))
        case 6:
            trainer.step()
        case 7:  # a new collector: all it knows is what was stored
            stored = codec.encode(state)
            yard.sampler = Sampler(settings, codec.decode(stored, SamplerState))


def play(seed: int) -> SmallYard:
    draw = random.Random(seed)
    yard = SmallYard(any_settings(draw), draw)
    trainer = Trainer(yard, draw)
    for _ in range(STEPS):
        step(yard, trainer, draw)
        if len(trainer.trained) == BATCHES:
            break
    else:
        raise AssertionError(f"stuck: {yard.sampler.state}")
    while yard.events:
        yard.conclude()
    return yard


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_interleaving_gives_exact_batches_and_each_member_one_fate(shard: int) -> None:
    for seed in range(shard, SEEDS, SHARDS):
        try:
            yard = play(seed)
            assert_nothing_is_lost_or_repeated(yard)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def assert_nothing_is_lost_or_repeated(yard: SmallYard) -> None:
    state = yard.sampler.state
    members = [
        (chosen.group_id, member)
        for batch in yard.batches.values()
        for chosen in batch
        for member in chosen.members
    ]
    assert len(members) == len(set(members)), "a member was delivered twice"
    assert set(yard.batches) == set(yard.requested), "a batch was never delivered"
    alive = {name for name, why in yard.groups.items() if why is None}
    assert alive == {*state.open, *state.complete}, "a prompt was lost, or its group forgotten"
    fates = [why for why in yard.groups.values() if why is not None]
    assert fates.count(Why.SKIPPED) == state.groups_skipped
    assert fates.count(Why.CUT_SHORT) == state.groups_cut_short
    assert fates.count(Why.FILTERED) == state.groups_filtered
    for name, group in state.open.items():
        for job in (yard._jobs(name)[member] for member in group.unfinished()):
            assert job in yard.queued or job in yard.running, f"nobody will ever run {job}"
