"""`rollyard runs` says who has the slots: leased jobs, their share, and what is queued."""

from launch.run_commands import listing
from rollyard.messages import Counters, RunStatus, Share

EQUAL = Share()


def run(
    run_id: str, *, leased: int, parked: int = 0, queued: int = 0, share: Share = EQUAL
) -> RunStatus:
    return RunStatus(
        run_id=run_id,
        batch_id=None,
        requested_batch_size=0,
        effective_groups=0,
        open_groups=0,
        idle=False,
        prompts_wanted=0,
        batch_ready=False,
        counters=Counters(jobs_leased=leased, jobs_parked=parked, jobs_queued=queued),
        share=share,
    )


def who_has_the_slots(*runs: RunStatus) -> list[dict[str, str]]:
    columns, *rows = (line.split("\t") for line in listing(runs).lines())
    wanted = ("run", "leased", "share", "queued")
    return [{name: row[columns.index(name)] for name in wanted} for row in rows]


def test_runs_are_listed_with_their_part_of_the_leased_jobs_and_those_that_are_parked() -> None:
    big, idle = run("big", leased=48, queued=900), run("idle", leased=16, parked=15)
    assert who_has_the_slots(big, idle) == [
        {"run": "big", "leased": "48", "share": "75%", "queued": "900"},
        {"run": "idle", "leased": "16, 15 parked", "share": "25%", "queued": "0"},
    ]


def test_nobody_has_a_share_where_nothing_is_leased() -> None:
    (shown,) = who_has_the_slots(run("waits", leased=0, queued=3))
    assert (shown["leased"], shown["share"], shown["queued"]) == ("0", "-", "3")


def test_what_an_operator_said_of_a_share_is_shown_with_it() -> None:
    heavy = run("heavy", leased=30, share=Share(weight=2.5, max_slots=30))
    assert [row["share"] for row in who_has_the_slots(heavy, run("other", leased=10))] == [
        "75%, weight 2.5, at most 30",
        "25%",
    ]
