"""The checker finds each kind of harm in a history that is otherwise flawless."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos import work
from chaos.ages import Parked
from chaos.checker import Verdict, check
from chaos.history import History

Event = dict[str, Any]
ROWS = 10  # of which two are hopeless


def group(number: int) -> Event:
    return {
        "number": number,
        "members": [
            [f"chaos/p{number}/{member}", 1, work.reward(number, member), [1, 2]]
            for member in range(work.GROUP_SIZE)
        ],
    }


def flawless() -> dict[str, list[Event]]:
    batches = [[1, 2, 3, 4], [6, 7, 8, 9]]
    trainer: list[Event] = [{"event": "row", "number": number} for number in range(ROWS)]
    for index, numbers in enumerate(batches):
        seen = {"batch_id": f"b{index}", "digest": f"d{index}"}
        groups = [group(number) for number in numbers]
        said = {"version": 2, "said_version": 2, "said_ages": {"1": 16}}
        trainer += [
            {"event": "received", **seen},
            {"event": "trained", "requested": 4, "groups": groups, **said, **seen},
        ]
    counters = dict.fromkeys(
        ("jobs_queued", "jobs_leased", "jobs_dead", "jobs_dropped", "groups_dead"), 0
    )
    counters |= {"jobs_submitted": 40, "jobs_accepted": 40, "groups_filtered": 2}
    counters |= {"attempts_failed": 0, "members_restarted": 0}
    closed = {"event": "closed", "ready_groups": 0, "open_groups": 0}
    trainer.append({**closed, "before": dict(counters), "after": dict(counters)})
    left = dict.fromkeys(
        ("leases", "holders", "tasks", "results", "prompts", "events", "faults_left"), 0
    )
    driver: list[Event] = [
        {"event": "kill_agent"},
        {"event": "ended", "slots": 8, "free_slots": 8, **left},
    ]
    agent: list[Event] = [
        {"event": "started"},
        *[{"event": "parked", "job": f"chaos/p1/{n}", "attempt": 1} for n in range(3)],
        {"event": "resumed", "job": "chaos/p1/0", "attempt": 1},
        {"event": "stopped", "job": "chaos/p1/1", "attempt": 1},
        {"event": "started"},
    ]
    return {"trainer": trainer, "driver": driver, "observer": [], "agent-0": agent}


def judge(directory: Path, story: dict[str, list[Event]]) -> Verdict:
    directory.mkdir(exist_ok=True)
    for name, events in story.items():
        history = History(directory / f"{name}.jsonl")
        for event in events:
            fields = dict(event)
            history.write(fields.pop("event"), **fields)
    return check(directory)


def trained(story: dict[str, list[Event]]) -> list[Event]:
    return [event for event in story["trainer"] if event["event"] == "trained"]


def closed(story: dict[str, list[Event]]) -> Event:
    return story["trainer"][-1]


def lose_a_group(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["groups"].pop()
    trained(story)[0]["requested"] -= 1


def filter_too_few(story: dict[str, list[Event]]) -> None:
    closed(story)["after"]["groups_filtered"] -= 1


def lose_a_submission(story: dict[str, list[Event]]) -> None:
    closed(story)["after"]["jobs_submitted"] -= 4


def train_on_a_group_twice(story: dict[str, list[Event]]) -> None:
    trained(story)[1]["groups"][0] = trained(story)[0]["groups"][0]


def accept_once_too_often(story: dict[str, list[Event]]) -> None:
    closed(story)["after"]["jobs_accepted"] += 1


def deliver_too_few_groups(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["requested"] += 1


def deliver_a_hopeless_group(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["groups"][0] = group(5)


def swap_two_members(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["groups"][0]["members"].reverse()


def redeliver_other_bytes(story: dict[str, list[Event]]) -> None:
    story["trainer"].append({"event": "received", "batch_id": "b0", "digest": "other"})


def train_on_a_batch_twice(story: dict[str, list[Event]]) -> None:
    story["trainer"].append({**trained(story)[0], "groups": []})


def break_conservation(story: dict[str, list[Event]]) -> None:
    counters = {**closed(story)["after"], "jobs_leased": 1}
    story["observer"].append({"event": "counters", "counters": counters})


def leave_a_result_behind(story: dict[str, list[Event]]) -> None:
    story["driver"][-1]["results"] = 1


def leak_a_slot(story: dict[str, list[Event]]) -> None:
    story["driver"][-1]["free_slots"] -= 1


def train_on_an_older_member(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["groups"][2]["members"][1][3] = [0, 1]
    trained(story)[0]["said_ages"] = {"1": 15, "2": 1}


def hide_an_age(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["said_ages"] = {"0": 1, "1": 15}


def train_later_than_said(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["version"] += 1


def let_a_version_fall(story: dict[str, list[Event]]) -> None:
    trained(story)[0]["groups"][2]["members"][1][3] = [2, 1]


def let_an_attempt_stand_still_for_ever(story: dict[str, list[Event]]) -> None:
    story["agent-0"].append({"event": "parked", "job": "chaos/p2/0", "attempt": 1})


def run_a_job_where_its_tag_is_missing(story: dict[str, list[Event]]) -> None:
    story["agent-0"].append({"event": "misplaced", "job": "chaos/p3/0", "attempt": 1})


def let_redis_grow(story: dict[str, list[Event]]) -> None:
    story["observer"] += [
        {"event": "memory", "at": at, "redis_bytes": at * 2**20, "processes": {}}
        for at in range(90)
    ]


def end_before_the_faults(story: dict[str, list[Event]]) -> None:
    story["driver"][-1]["faults_left"] = 1


def test_a_flawless_history_is_found_flawless(tmp_path: Path) -> None:
    verdict = judge(tmp_path, flawless())
    assert verdict.problems == []
    assert (verdict.jobs, verdict.accepted, verdict.batches) == (40, 40, 2)
    assert verdict.ages == {1: 32}
    assert verdict.parked == Parked(parked=3, resumed=1, stopped=1, lost=1)


@pytest.mark.parametrize(
    ("harm", "count"),
    [
        (lose_a_group, "lost"),
        (filter_too_few, "lost"),
        (lose_a_submission, "lost"),
        (train_on_a_group_twice, "duplicates"),
        (accept_once_too_often, "duplicates"),
        (deliver_too_few_groups, "batches_wrong"),
        (deliver_a_hopeless_group, "batches_wrong"),
        (swap_two_members, "batches_wrong"),
        (redeliver_other_bytes, "batches_wrong"),
        (train_on_a_batch_twice, "batches_wrong"),
        (break_conservation, "invariant_violations"),
        (leave_a_result_behind, "leftovers"),
        (leak_a_slot, "leftovers"),
        (train_on_an_older_member, "batches_too_old"),
        (hide_an_age, "batches_too_old"),
        (train_later_than_said, "batches_too_old"),
        (let_a_version_fall, "batches_too_old"),
        (let_an_attempt_stand_still_for_ever, "parked_for_ever"),
        (run_a_job_where_its_tag_is_missing, "misplaced"),
    ],
)
def test_each_harm_is_counted_and_told(
    tmp_path: Path, harm: Callable[[dict[str, list[Event]]], None], count: str
) -> None:
    story = flawless()
    harm(story)
    verdict = judge(tmp_path, story)
    assert getattr(verdict, count) > 0
    assert verdict.problems
    assert not verdict.ok


def test_memory_that_grows_is_told(tmp_path: Path) -> None:
    story = flawless()
    assert judge(tmp_path / "short", story).flat_memory is None
    let_redis_grow(story)
    verdict = judge(tmp_path / "long", story)
    assert verdict.flat_memory is False
    assert "redis grew" in verdict.problems[0]


def test_a_run_that_ended_before_its_faults_proves_nothing(tmp_path: Path) -> None:
    story = flawless()
    end_before_the_faults(story)
    assert not judge(tmp_path, story).ok
