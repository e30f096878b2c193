from simulator.bounds import bounds
from simulator.chance import shuffled, uniforms
from simulator.dataset import Try, World, WorldSettings
from simulator.plan import Plan
from simulator.policies import policy
from tests.simulator.workloads import Written, row


def test_chance_depends_on_nothing_but_the_question() -> None:
    assert uniforms(1, "a", 2) == uniforms(1, "a", 2)
    assert uniforms(1, "a", 2) != uniforms(1, "a", 3)
    assert all(0 < each < 1 for number in range(1000) for each in uniforms(number))
    assert sorted(shuffled(50, "seed")) == list(range(50))


def test_every_epoch_has_each_row_once_in_another_order() -> None:
    world = World(1, WorldSettings(rows=20))
    epochs = [[world.prompt(epoch * 20 + place) for place in range(20)] for epoch in (0, 1)]
    assert [sorted(row for row, _ in epoch) for epoch in epochs] == [list(range(20))] * 2
    assert [{occurrence for _, occurrence in epoch} for epoch in epochs] == [{0}, {1}]
    assert [row for row, _ in epochs[0]] != [row for row, _ in epochs[1]]


def test_the_world_is_as_published_runs_had_it() -> None:
    draws = [
        world.draw(Try(row, 0, member, 0), 0)
        for world in map(World, range(10))
        for row in range(293)
        for member in range(8)
    ]
    mean = sum(draw.seconds for draw in draws) / len(draws)
    assert 500 < mean < 580
    assert max(draw.seconds for draw in draws) == 1620
    groups = [draws[i : i + 8] for i in range(0, len(draws), 8)]
    effective = sum(len({draw.reward for draw in group}) == 2 for group in groups) / len(groups)
    assert 0.33 < effective < 0.39


def test_without_drift_pass_rates_stay_and_with_it_they_move() -> None:
    still, moving = World(1), World(1, WorldSettings(drift=0.5))
    assert [still.pass_rate(row, 9) for row in range(99)] == [
        still.pass_rate(row, 0) for row in range(99)
    ]
    assert [moving.pass_rate(row, 0) for row in range(99)] == [
        still.pass_rate(row, 0) for row in range(99)
    ]
    assert [moving.pass_rate(row, 9) for row in range(99)] != [
        still.pass_rate(row, 0) for row in range(99)
    ]


def test_bounds_are_those_of_the_groups_fed_and_of_the_effective_ones() -> None:
    workload = Written(row((1.0, 1.0), (0.0, 2.0)), row((0.0, 4.0), (0.0, 5.0)))
    plan = Plan(slots=1, requested_batch_size=2, steps=3, warm_up=1)
    found = bounds(workload, policy("resume", group_size=2).settings, plan)
    assert found.oracle_seconds == 2 * 3.0
    assert found.blind_seconds == 2 * (3.0 + 9.0)
    assert found.mean_seconds == 1.5
    assert found.long_share([1.0, 2.0, 3.0, 4.0]) == 0.5
