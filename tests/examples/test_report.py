import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from history import Sample, StepRecord, Summary, samples_of, summarize
from report import html_report, write_report

from rollyard.messages import BatchReport, Bias, Occupancy, OccupancyPoint, SlotSeconds
from tests.trajectories import batch, group, trajectory

REPORT = BatchReport(
    weight_version=3,
    slot_seconds=SlotSeconds(useful=6.0, filtered=3.0, idle=1.0),
    bias=Bias(
        trajectories=128,
        mean_seconds=1.01,
        started_mean_seconds=1.0,
        long_share=0.09,
        started_long_share=0.1,
        ages={0: 120, 1: 8},
    ),
)


def step(number: int, reward: float, **changes: Any) -> StepRecord:
    values: dict[str, Any] = {
        "groups_in_batch": 16,
        "groups_filtered": 4,
        "jobs_accepted": 160,
        "jobs_cancelled": 3,
        "jobs_carried_over": 2,
        "members_restarted": 1,
        "report": REPORT,
        "loss": -0.01,
        "logprob_gap": 1e-6,
        "rollout_started_at": 100.0 + number,
        "training_started_at": 100.5 + number,
        "weights_started_at": 100.7 + number,
        "ended_at": 101.0 + number,
    }
    return StepRecord(step=number, reward=reward, **(values | changes))


STEPS = [step(1, 0.5), step(2, 0.96), step(3, 0.97)]


def summary_of(steps: Sequence[StepRecord], **changes: float) -> Summary:
    values: dict[str, Any] = {
        "pass_rate_before": 0.5,
        "pass_rate_after": 0.97,
        "requested_batch_size": 16,
        "total_seconds": 9.0,
    }
    return summarize(steps, **(values | changes))


def occupancy(server: str = "agent-1") -> Occupancy:
    points = tuple(OccupancyPoint(at=100.0 + i, busy={server: i % 8}) for i in range(10))
    return Occupancy(slots={server: 8}, points=points)


def test_a_run_that_learned_is_ok() -> None:
    summary = summary_of(STEPS)
    assert summary.ok
    assert (summary.groups_kept, summary.groups_filtered) == (48, 12)
    assert (summary.jobs_accepted, summary.jobs_cancelled, summary.jobs_carried_over) == (480, 9, 6)
    assert summary.train_seconds == pytest.approx(3.0)


def test_a_summary_tells_bias_and_waste_over_all_trajectories() -> None:
    other = BatchReport(
        slot_seconds=SlotSeconds(useful=10.0),
        bias=Bias(trajectories=384, long_share=0.13, started_long_share=0.1, ages={0: 384}),
    )
    summary = summary_of([*STEPS[:1], step(2, 0.9, report=other)])
    assert summary.long_share == pytest.approx(0.12)
    assert summary.slot_time == {
        **dict.fromkeys(("surplus", "cancelled", "failed"), 0.0),
        **{"useful": 0.8, "filtered": 0.15, "idle": 0.05},
    }
    assert (summary.oldest_age, summary.members_restarted) == (1, 2)


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        ([step(1, 0.5), step(2, 0.96)], {}),
        ([step(1, 0.96), step(2, 0.5)], {}),
        ([], {}),
        (STEPS, {"pass_rate_before": 0.66}),
        (STEPS, {"pass_rate_after": 0.89}),
        (STEPS, {"requested_batch_size": 17}),
        ([*STEPS[:2], step(3, 0.97, logprob_gap=2e-3)], {}),
        ([*STEPS[:2], step(3, 0.97, groups_in_batch=15)], {}),
    ],
)
def test_a_run_is_not_ok_if_any_promise_is_broken(
    steps: list[StepRecord], changes: dict[str, float]
) -> None:
    assert not summary_of(steps, **changes).ok


def test_the_page_refers_to_nothing_outside_itself() -> None:
    page = html_report(summary_of(STEPS), STEPS, occupancy())
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert "@import" not in page
    references = re.findall(r'(?:href|src)="([^"]*)"|url\(([^)]*)\)', page)
    assert all(either[0].startswith("#") or either[1].startswith("#") for either in references)


def test_every_colour_of_the_charts_follows_the_readers_preference() -> None:
    page = html_report(summary_of(STEPS), STEPS, occupancy())
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert re.findall(r"#[0-9a-f]{6}\b", drawings) == []
    light, dark = (set(re.findall(r"(--[\w-]+):", part)) for part in page.split("@media", 1))
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= light & dark


def test_text_from_outside_is_escaped() -> None:
    page = html_report(summary_of(STEPS), STEPS, occupancy("<img src=x onerror=alert(1)>"))
    assert "<img" not in page
    assert "&lt;img src=x" in page


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.rows += tag == "tr"


def test_the_table_has_a_row_for_every_step() -> None:
    cells = Cells()
    cells.feed(html_report(summary_of(STEPS), STEPS, occupancy()))
    assert cells.rows == len(STEPS) + 1


def test_a_run_without_steps_or_occupancy_still_has_a_page() -> None:
    assert "not learned" in html_report(summary_of([]), [], Occupancy(slots={}, points=()))


def test_the_json_report_is_the_summary_and_the_steps(tmp_path: Path) -> None:
    summary = summary_of(STEPS)
    assert write_report(tmp_path, summary, STEPS, occupancy()) == tmp_path / "report.html"
    report = json.loads((tmp_path / "report.json").read_text())
    per_step = report.pop("per_step")
    assert [row["reward"] for row in per_step] == [0.5, 0.96, 0.97]
    assert per_step[0]["report"]["bias"]["ages"] == {"0": 120, "1": 8}
    assert report == summary.to_json()


def test_the_report_shows_what_the_policy_did_first_and_last_as_text() -> None:
    def sample(said: str) -> Sample:
        return Sample(job_id="run/g/0", reward=1.0, messages=(("user", "6*7"), ("assistant", said)))

    steps = [
        step(1, 0.5, samples=(sample("guess <b>41</b>"),)),
        step(2, 0.9, samples=(sample("in between"),)),
        step(3, 0.97, samples=(sample("6*7 is 42"),)),
    ]
    page = html_report(summary_of(steps), steps, occupancy())
    assert "guess &lt;b&gt;41&lt;/b&gt;" in page
    assert "6*7 is 42" in page
    assert "in between" not in page


def test_a_step_keeps_the_best_and_the_worst_of_its_first_group() -> None:
    moves = trajectory(("given", [1]), ("sampled", [2]))
    kept = samples_of(batch(group("g", (0.5, moves), (0.0, moves), (1.0, moves))))
    assert [(sample.job_id, sample.reward) for sample in kept] == [("g-2", 1.0), ("g-1", 0.0)]
    assert kept[0].messages == (("user", "1*1"),)
