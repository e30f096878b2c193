"""A closed Run leaves the lists, and in the end Redis."""

import re
import uuid

import pytest
import redis

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.queues.connection import SCRIPTS
from orchestrator.queues.runs import MAX_FORGOTTEN_AT_ONCE
from rollyard.errors import Conflict, NotFound
from rollyard.messages import JobState, Prompt, RunSettings
from tests.orchestrator.moves import completed, failed, leased, report
from tests.orchestrator.test_operations import server

ILL = RunSettings(run_id="ill", group_size=2, max_infra_failures=1)


@pytest.fixture
def prefix() -> str:
    return f"rollyard:test:{uuid.uuid4().hex}:"


@pytest.fixture
def queues(redis_url: str, prefix: str) -> Queues:
    """Two Runs, of which one has a Job that died, one that runs and one with its Result."""
    queues = Queues(redis_url, prefix=prefix, lease_seconds=60.0)
    queues.runs.create(RunSettings(run_id="well", group_size=2))
    queues.runs.create(ILL)
    queues.servers.register(server("agent-0"))
    for number in range(2):
        prompt = Prompt(prompt_id=f"p{number}", instance={"data_source": "arithmetic"})
        queues.tasks.submit("ill", [prompt])
    queues.events.tell("ill", BatchRequested(batch_id="b", requested_batch_size=2))
    collect(queues, "ill")
    report(queues, failed(leased(queues)))
    report(queues, completed(leased(queues)))
    return queues


@pytest.fixture
def old(redis_url: str, prefix: str) -> Queues:
    """The same, as if all had been kept for longer than is wanted."""
    return Queues(redis_url, prefix=prefix, lease_seconds=60.0, retention_seconds=-1.0)


def close(queues: Queues, run_id: str) -> None:
    queues.events.close(run_id)
    collect(queues, run_id)


def collect(queues: Queues, run_id: str) -> None:
    """All turns that there are for a collector."""
    Collector(queues.events, queues.runs, lambda _: None).collect(run_id)
    while (run := queues.runs.read(run_id)).sweeping or run.events_waiting:
        Collector(queues.events, queues.runs, lambda _: None).collect(run_id)


def test_the_dead_of_a_closed_run_are_listed_for_those_who_ask_for_them(queues: Queues) -> None:
    operators = Operators(queues)

    def listed(run: str | None, *, closed: bool) -> tuple[int, int]:
        jobs = operators.jobs(run=run, state=JobState.DEAD, closed=closed).jobs
        return len(operators.dead(run=run, closed=closed).jobs), len(jobs)

    assert listed(None, closed=False) == (1, 1)
    close(queues, "ill")
    assert listed(None, closed=False) == (0, 0)
    assert listed(None, closed=True) == (1, 1)
    assert listed("ill", closed=False) == (1, 1)


def test_nothing_is_left_of_a_run_that_is_forgotten(
    queues: Queues, admin_redis_url: str, prefix: str
) -> None:
    lease = leased(queues)
    close(queues, "ill")
    assert report(queues, completed(lease)).receipt == "stale"
    queues.runs.forget("ill")
    assert report(queues, completed(lease)).receipt == "stale"
    with redis.Redis.from_url(admin_redis_url) as client:
        assert list(client.scan_iter(f"{prefix}run:ill:*", count=1000)) == []
    assert queues.runs.ids() == ["well"]
    assert queues.runs.closed_ids() == set()
    with pytest.raises(NotFound):
        queues.runs.forget("ill")


def test_a_run_that_is_not_closed_is_not_forgotten(queues: Queues, old: Queues) -> None:
    for run_id in ("well", "ill"):
        with pytest.raises(Conflict, match="is not closed"):
            queues.runs.forget(run_id)
    old.runs.forget_closed()
    assert queues.runs.ids() == ["ill", "well"]


def test_runs_are_forgotten_by_themselves_when_they_were_closed_long_ago(
    queues: Queues, old: Queues
) -> None:
    close(queues, "ill")
    queues.runs.forget_closed()
    assert queues.runs.ids() == ["ill", "well"]
    old.runs.forget_closed()
    assert queues.runs.ids() == ["well"]


def test_a_run_whose_end_nobody_concluded_is_forgotten_all_the_same(
    queues: Queues, old: Queues, admin_redis_url: str, prefix: str
) -> None:
    held = leased(queues)
    queues.events.close("ill")
    queues.events.set_aside("ill", "its sampler is of another version")
    with pytest.raises(Conflict):
        queues.runs.forget("ill")
    old.runs.forget_closed()
    assert queues.runs.ids() == ["well"]
    assert report(queues, completed(held)).receipt == "stale"
    with redis.Redis.from_url(admin_redis_url) as client:
        assert list(client.scan_iter(f"{prefix}run:ill:*", count=1000)) == []
        assert client.hlen(f"{prefix}set_aside") == 0


def test_runs_that_cannot_be_forgotten_hold_up_no_other(
    queues: Queues, old: Queues, admin_redis_url: str, prefix: str
) -> None:
    damaged = [f"damaged-{number}" for number in range(MAX_FORGOTTEN_AT_ONCE + 1)]
    with redis.Redis.from_url(admin_redis_url) as client:
        for run_id in damaged:
            queues.runs.create(RunSettings(run_id=run_id, group_size=2))
            close(queues, run_id)
            client.set(f"{prefix}run:{run_id}:holders", "no hash")
    close(queues, "well")
    for _ in range(2):
        old.runs.forget_closed()
    assert queues.runs.ids() == [*sorted(damaged), "ill"]


def test_who_still_knows_a_forgotten_run_leaves_nothing_of_it_in_redis(
    queues: Queues, redis_url: str, admin_redis_url: str, prefix: str
) -> None:
    other = Queues(redis_url, prefix=prefix)
    other.runs.settings("ill")
    close(queues, "ill")
    queues.runs.forget("ill")
    prompt = Prompt(prompt_id="p9", instance={"data_source": "arithmetic"})
    for late in (
        lambda: other.tasks.submit("ill", [prompt]),
        lambda: other.events.tell("ill", BatchRequested(batch_id="b", requested_batch_size=2)),
        lambda: other.events.close("ill"),
    ):
        with pytest.raises(NotFound):
            late()
    with redis.Redis.from_url(admin_redis_url) as client:
        assert list(client.scan_iter(f"{prefix}run:ill:*", count=1000)) == []
    assert queues.runs.closed_ids() == set()


def test_the_id_of_a_prompt_that_is_gone_is_known_until_it_was_kept_long_enough(
    queues: Queues, old: Queues, admin_redis_url: str, prefix: str
) -> None:
    collect(queues, "ill")
    prompt = Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})
    assert queues.tasks.submit("ill", [prompt]) == [False], "it was dropped, with its dead job"
    with redis.Redis.from_url(admin_redis_url) as client:
        report(queues, failed(leased(queues)))
        collect(old, "ill")
        assert client.zcard(f"{prefix}run:ill:gone_at") == 0
    assert queues.tasks.submit("ill", [prompt]) == [True]


def test_the_name_of_a_forgotten_run_is_free_for_other_settings(queues: Queues) -> None:
    close(queues, "ill")
    queues.runs.forget("ill")
    queues.runs.create(RunSettings(run_id="ill", group_size=3))
    queues.tasks.submit("ill", [Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})])
    assert queues.runs.read("ill").counters.jobs_queued == 3


def test_every_key_of_a_run_that_is_documented_is_removed() -> None:
    common = (SCRIPTS / "_common.lua").read_text()
    _, of_a_run = common.split("-- under run:<run id>:\n")
    lines = re.findall(r"^--   (\w.*?)  ?(?:string|hash|z?set|list)\b", of_a_run, re.MULTILINE)
    documented = {name.strip().partition("<")[0] for line in lines for name in line.split(",")}
    _, sampled_from = common.split("local SAMPLED_FROM = {")
    _, tasks = (SCRIPTS / "_tasks.lua").read_text().split("local function forget_tasks")
    removed = [
        sampled_from.partition("}")[0],
        (SCRIPTS / "forget.lua").read_text().partition("}")[0],
        tasks.partition("forget_keys(")[0].replace("'next:' .. ALL", ""),
    ]
    assert set(re.findall(r"'([a-z_]+:?)'", " ".join(removed))) == documented
