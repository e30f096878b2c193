"""A Batch's report is the same words wherever it is shown."""

from rollyard import reporting
from rollyard.messages import BatchReport, Bias, SlotSeconds

REPORT = BatchReport(
    slot_seconds=SlotSeconds(useful=30.0, filtered=60.0, idle=10.0, failed=0.2),
    bias=Bias(
        trajectories=8,
        mean_seconds=4.95,
        started_mean_seconds=5.0,
        long_share=0.094,
        started_long_share=0.1,
        ages={1: 2, 0: 6},
    ),
)


def test_slot_time_is_told_with_the_largest_part_first_and_no_crumbs() -> None:
    assert reporting.waste(REPORT) == "filtered 60%, useful 30%, idle 10%"


def test_the_shares_of_slot_time_are_those_of_all_of_it() -> None:
    assert sum(reporting.shares(REPORT.slot_seconds).values()) == 1.0


def test_bias_and_age_are_told_beside_what_they_are_compared_with() -> None:
    assert reporting.bias(REPORT) == "long 9% of 10%, mean 0.99 x"
    assert reporting.ages(REPORT) == "0: 6, 1: 2"


def test_a_report_of_nothing_tells_nothing() -> None:
    empty = BatchReport()
    assert {reporting.waste(empty), reporting.bias(empty), reporting.ages(empty)} == {"-"}
