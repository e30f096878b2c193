"""What Prometheus is told."""

from orchestrator.metrics import render_metrics
from rollyard.messages import BatchReport, Bias, Counters, FleetStatus, RunStatus, SlotSeconds


def told(run: RunStatus) -> list[str]:
    return render_metrics(FleetStatus(runs=(run,), servers=(), llm_nodes=())).splitlines()


def status(counters: Counters, report: BatchReport | None = None) -> RunStatus:
    return RunStatus(
        run_id="train",
        batch_id=None,
        requested_batch_size=0,
        effective_groups=0,
        open_groups=0,
        idle=True,
        prompts_wanted=0,
        batch_ready=False,
        counters=counters,
        last_report=report,
    )


def test_jobs_and_groups_are_counted_by_state_and_fate() -> None:
    counters = Counters(
        jobs_leased=3, jobs_parked=2, jobs_unoffered=6, groups_skipped=4, members_restarted=5
    )
    lines = told(status(counters))
    assert 'rollyard_jobs{run="train",state="unoffered"} 6.0' in lines
    assert 'rollyard_jobs{run="train",state="leased"} 3.0' in lines
    assert 'rollyard_jobs{run="train",state="parked"} 2.0' in lines
    assert 'rollyard_groups{fate="skipped",run="train"} 4.0' in lines
    assert 'rollyard_members_total{fate="restarted",run="train"} 5.0' in lines


def test_the_time_of_slots_is_counted_by_fate() -> None:
    lines = told(status(Counters(slot_seconds=SlotSeconds(useful=8.0, idle=1.5, surplus=9.0))))
    assert 'rollyard_slot_seconds_total{fate="useful",run="train"} 8.0' in lines
    assert 'rollyard_slot_seconds_total{fate="idle",run="train"} 1.5' in lines
    assert not any("surplus" in line for line in lines)


def test_the_bias_of_the_last_batch_is_shown_once_there_is_one() -> None:
    assert not any(line.startswith("rollyard_batch_") for line in told(status(Counters())))
    bias = Bias(
        mean_seconds=3.0,
        started_mean_seconds=4.0,
        long_share=0.05,
        started_long_share=0.125,
        ages={0: 6, 1: 2},
    )
    lines = told(status(Counters(), BatchReport(bias=bias)))
    assert 'rollyard_batch_mean_length_ratio{run="train"} 0.75' in lines
    assert 'rollyard_batch_long_share{of="batch",run="train"} 0.05' in lines
    assert 'rollyard_batch_long_share{of="started",run="train"} 0.125' in lines
    assert 'rollyard_batch_trajectories{age="1",run="train"} 2.0' in lines
