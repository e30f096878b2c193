"""When a trainer stops waiting for what no agent server has ever had."""

import msgspec
import pytest

from rollyard.messages import Counters, RunStatus
from rollyard.never_offered import Patience

WAITING = RunStatus(
    run_id="train",
    batch_id="b",
    requested_batch_size=1,
    effective_groups=0,
    open_groups=1,
    idle=False,
    prompts_wanted=0,
    batch_ready=False,
    counters=Counters(jobs_submitted=8, jobs_queued=8, jobs_unoffered=8),
    never_offered="no agent server has ever had the environment 'chess'",
)


def with_counters(**changes: int) -> RunStatus:
    counters = msgspec.structs.replace(WAITING.counters, **changes)
    return msgspec.structs.replace(WAITING, counters=counters)


def test_the_dataloader_is_asked_once_before_the_wait_is_over() -> None:
    patience = Patience(0.0)
    assert patience.end(WAITING) is None
    assert "8 jobs of run 'train' wait in vain: no agent server" in str(patience.end(WAITING))


@pytest.mark.parametrize(
    "going_on",
    [
        with_counters(jobs_submitted=10, jobs_leased=2),
        with_counters(jobs_submitted=10, jobs_queued=10),
        with_counters(jobs_submitted=10, jobs_accepted=2),
        msgspec.structs.replace(WAITING, never_offered=""),
    ],
    ids=["runs", "can run", "has run", "may come back"],
)
def test_the_wait_begins_anew_with_whatever_goes_on(going_on: RunStatus) -> None:
    patience = Patience(0.0)
    assert patience.end(WAITING) is None
    assert patience.end(going_on) is None


def test_without_a_limit_there_is_no_end() -> None:
    patience = Patience(None)
    assert patience.end(WAITING) is patience.end(WAITING) is None
