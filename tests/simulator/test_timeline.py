from itertools import pairwise
from xml.etree import ElementTree

from simulator.dataset import World
from simulator.plan import Plan
from simulator.policies import policy
from simulator.timeline import Recorder, Stretch, Timeline, drawn, timeline
from simulator.training import simulate
from tests.simulator.workloads import Written, row

SVG = "{http://www.w3.org/2000/svg}"
PLAN = Plan(slots=8, requested_batch_size=2, steps=3, warm_up=0)


def recorded(name: str) -> Timeline:
    recorder = Recorder()
    outcome = simulate(World(1), policy(name, group_size=4), PLAN, recorder)
    return timeline(name, outcome, recorder)


def test_stretches_of_a_slot_never_overlap() -> None:
    for name in ("batchwise", "restart", "resume"):
        by_slot: dict[int, list[Stretch]] = {}
        for each in recorded(name).stretches:
            by_slot.setdefault(each.slot, []).append(each)
        for stretches in by_slot.values():
            stretches.sort(key=lambda each: each.since)
            for earlier, later in pairwise(stretches):
                assert earlier.until <= later.since


def test_a_stretch_is_as_long_as_what_ran_and_says_what_it_came_to() -> None:
    workload = Written(row((1.0, 1.0), (0.0, 2.0)))
    recorder = Recorder()
    plan = Plan(slots=3, requested_batch_size=1, steps=1, warm_up=0)
    simulate(workload, policy("restart", group_size=2), plan, recorder)
    # the third slot runs the next group's first member, which ends at 1 as well
    assert sorted((each.since, each.until, each.fate) for each in recorder.stretches) == [
        (0.0, 1.0, "resolved"),
        (0.0, 1.0, "resolved"),
        (0.0, 2.0, "unresolved"),
        (1.0, 2.0, "resolved"),
        (1.0, 2.0, "stopped"),
    ]


def test_the_picture_is_small_well_formed_svg() -> None:
    picture = drawn([recorded("batchwise"), recorded("resume")])
    root = ElementTree.fromstring(picture)
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert [text for text in texts if text.startswith("batchwise: 3 batches in")]
    assert [text for text in texts if text.startswith("resume: 3 batches in")]
    assert len(picture) < 60_000
