"""A sampler counts the Groups that die one after the other, until a Job succeeds."""

from orchestrator.events import JobDied, RunRetried
from orchestrator.sampling.sampler import Sampler
from orchestrator.sampling.state import MAX_DEATHS_KNOWN
from rollyard.messages import Unit
from tests.orchestrator.sampling.driving import feed, job, new_sampler, request, result


def die(sampler: Sampler, group: str, member: int = 0, reason: str = "no question") -> None:
    sampler.handle(JobDied(job_id=job(group, member), reason=reason))


def test_groups_that_die_are_counted_with_their_reasons() -> None:
    sampler = new_sampler()
    for group in ("a", "b"):
        feed(sampler, group)
        die(sampler, group, reason=f"no {group}")
    assert sampler.state.dead_in_a_row == 2
    assert [(each.group_id, each.reason) for each in sampler.state.deaths] == [
        ("a", "no a"),
        ("b", "no b"),
    ]


def test_a_group_counts_once_however_many_of_its_jobs_die() -> None:
    sampler = new_sampler(unit=Unit.TRAJECTORIES, criterion="complete")
    feed(sampler, "a")
    die(sampler, "a", 0)
    die(sampler, "a", 1)
    assert sampler.state.dead_in_a_row == 1


def test_a_job_that_succeeds_begins_the_count_anew() -> None:
    sampler = new_sampler()
    feed(sampler, "a")
    feed(sampler, "b")
    die(sampler, "a")
    result(sampler, "b", 0, 1.0)
    assert (sampler.state.dead_in_a_row, sampler.state.deaths) == (0, [])


def test_a_trainer_that_goes_on_begins_the_count_anew() -> None:
    sampler = new_sampler()
    feed(sampler, "a")
    die(sampler, "a")
    assert sampler.handle(RunRetried()) == []
    assert sampler.state.dead_in_a_row == 0
    feed(sampler, "b")
    die(sampler, "b")
    request(sampler, 1)
    assert sampler.state.dead_in_a_row == 0


def test_only_the_last_deaths_are_remembered() -> None:
    sampler = new_sampler()
    for number in range(MAX_DEATHS_KNOWN + 2):
        feed(sampler, f"g{number}")
        die(sampler, f"g{number}", reason="x" * 5000)
    assert sampler.state.dead_in_a_row == MAX_DEATHS_KNOWN + 2
    assert sampler.state.deaths[-1].group_id == f"g{MAX_DEATHS_KNOWN + 1}"
    assert len(sampler.state.deaths) == MAX_DEATHS_KNOWN
    assert len(sampler.state.deaths[0].reason) < 1000
