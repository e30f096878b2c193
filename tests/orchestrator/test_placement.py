"""Which Job goes to which server: promised by the queues."""

import random
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest
import redis

from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Drop, Hold, Open, Park, Why
from rollyard.messages import (
    AgentServer,
    Assignment,
    Criterion,
    Lease,
    Prompt,
    RunSettings,
    Trainer,
)
from tests.orchestrator.moves import assert_conserved, completed, decide, failed, leased, report
from tests.queue_fixtures import QueueMaker

MANY_KINDS = 300


def server(
    number: int, *environments: str, tags: Iterable[str] = (), slots: int = 1, ahead: int = 0
) -> AgentServer:
    return AgentServer(
        server_id=f"agent-{number}",
        url="http://127.0.0.1:9",
        slots=slots,
        ahead=ahead,
        environments=environments,
        tags=tuple(tags),
    )


def row(name: str, environment: str, *tags: str) -> Prompt:
    needs = {"tags": list(tags)} if tags else {}
    return Prompt(prompt_id=name, instance={"data_source": environment, **needs})


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    """An open Run whose Groups are single Jobs, and no server."""
    open_run(patient_queues, "train")
    return patient_queues


def open_run(queues: Queues, run_id: str, *tags: str) -> None:
    settings = RunSettings(run_id=run_id, group_size=1, criterion=Criterion.ANY_SOLVED, tags=tags)
    queues.runs.create(settings)
    decide(queues, Open(), run_id=run_id)


def where(assignments: Iterable[Assignment]) -> dict[str, str]:
    """Group -> the server that got its Job."""
    return {each.job.group_id: each.lease.server_id for each in assignments}


def test_a_job_goes_only_to_a_server_that_has_its_environment(queues: Queues) -> None:
    queues.servers.register(server(0, "math", slots=4))
    queues.servers.register(server(1, "code", slots=4))
    queues.tasks.submit("train", [row(f"p{n}", ("code", "math")[n % 2]) for n in range(6)])
    went = where(queues.leases.lease(16))
    assert went == {f"p{n}": ("agent-1", "agent-0")[n % 2] for n in range(6)}


def test_a_job_goes_only_to_a_server_that_has_every_tag_it_needs(queues: Queues) -> None:
    queues.servers.register(server(0, "math", slots=4))
    queues.servers.register(server(1, "math", tags=["gpu"], slots=4))
    queues.servers.register(server(2, "math", tags=["large", "gpu"], slots=4))
    queues.tasks.submit(
        "train", [row("p0", "math", "gpu", "large"), row("p1", "math", "gpu"), row("p2", "math")]
    )
    assert where(queues.leases.lease(16)) == {"p0": "agent-2", "p1": "agent-1", "p2": "agent-0"}


def test_the_tags_of_a_row_replace_those_of_its_run(patient_queues: Queues) -> None:
    open_run(patient_queues, "train", "gpu")
    patient_queues.servers.register(server(0, "math", slots=4))
    patient_queues.servers.register(server(1, "math", tags=["gpu"], slots=4))
    needs_none = Prompt(prompt_id="p1", instance={"data_source": "math", "tags": []})
    patient_queues.tasks.submit("train", [row("p0", "math"), needs_none])
    assert where(patient_queues.leases.lease(16)) == {"p0": "agent-1", "p1": "agent-0"}


def test_what_no_server_can_run_keeps_nothing_else_waiting(queues: Queues) -> None:
    queues.servers.register(server(0, "math", slots=2))
    queues.tasks.submit("train", [row(f"n{n}", "chess") for n in range(5)])
    queues.tasks.submit("train", [row("p0", "math"), row("p1", "math", "gpu"), row("p2", "math")])
    assert where(queues.leases.lease(16)) == {"p0": "agent-0", "p2": "agent-0"}
    run = queues.runs.read("train")
    assert run.counters.jobs_unoffered == 6
    assert [str(kind) for kind in run.backlog.unoffered_kinds] == [
        "the environment 'chess'",
        "the environment 'math' with the tag gpu",
    ]
    assert_conserved(queues)


def test_what_a_server_had_is_known_after_it_has_left(queues: Queues) -> None:
    queues.servers.register(server(0, "math", tags=["gpu"]))
    queues.servers.register(server(1, "chess"))
    queues.servers.leave("agent-0")
    known = queues.connection.ask(queues.servers.known())
    assert known.environments == {"math", "chess"}
    assert known.tags == {"gpu"}


def test_a_server_that_comes_later_gets_what_waited_for_it(queues: Queues) -> None:
    queues.servers.register(server(0, "math"))
    queues.tasks.submit("train", [row("p0", "chess")])
    assert queues.leases.lease(16) == []
    queues.servers.register(server(1, "chess"))
    assert where(queues.leases.lease(16)) == {"p0": "agent-1"}


def test_a_server_that_registers_again_may_be_able_to_run_other_jobs(queues: Queues) -> None:
    queues.servers.register(server(0, "math"))
    queues.tasks.submit("train", [row("p0", "math"), row("p1", "chess")])
    queues.servers.register(server(0, "chess"))
    assert where(queues.leases.lease(16)) == {"p1": "agent-0"}
    assert queues.runs.read("train").counters.jobs_unoffered == 1
    queues.servers.register(server(0, "math", "chess", slots=2))
    assert where(queues.leases.lease(16)) == {"p0": "agent-0", "p1": "agent-0"}


def test_a_job_that_any_server_could_run_leaves_the_abler_one_to_others(queues: Queues) -> None:
    queues.servers.register(server(0, "math", "code", tags=["gpu"]))
    queues.servers.register(server(1, "math", "code"))
    queues.servers.register(server(2, "math"))
    queues.tasks.submit("train", [row("p0", "math"), row("p1", "code"), row("p2", "math", "gpu")])
    assert where(queues.leases.lease(16)) == {"p0": "agent-2", "p1": "agent-1", "p2": "agent-0"}


def test_runs_take_turns_for_the_servers_that_both_can_use(queues: Queues) -> None:
    open_run(queues, "other")
    queues.servers.register(server(0, "math", slots=4))
    queues.tasks.submit("train", [row(f"p{n}", "math") for n in range(4)])
    queues.tasks.submit("other", [row(f"q{n}", ("chess", "math")[n % 2]) for n in range(8)])
    runs = [each.job.run_id for each in queues.leases.lease(16)]
    assert runs in (["train", "other"] * 2, ["other", "train"] * 2)


def test_of_several_kinds_that_goes_first_whose_group_was_fed_first(queues: Queues) -> None:
    queues.servers.register(server(0, "math", "code"))
    queues.tasks.submit(
        "train", [row(f"p{n}", kind) for n, kind in enumerate(["code", "math", "math", "code"])]
    )
    order = []
    for _ in range(4):
        lease = leased(queues)
        order.append(lease.job_id)
        report(queues, completed(lease))
    assert order == [f"train/p{n}/0" for n in range(4)]


def test_a_kind_whose_first_group_is_dropped_waits_for_its_turn(queues: Queues) -> None:
    queues.servers.register(server(0, "math", "code"))
    queues.tasks.submit("train", [row("p0", "code"), row("p1", "math"), row("p2", "code")])
    decide(queues, Drop(group_ids=("p0",), why=Why.FILTERED))
    assert leased(queues).job_id == "train/p1/0"


def test_a_job_that_is_requeued_goes_first_among_its_kind(queues: Queues) -> None:
    queues.servers.register(server(0, "math"))
    queues.servers.register(server(1, "math"))
    queues.tasks.submit("train", [row(f"p{n}", "math") for n in range(4)])
    first, _ = queues.leases.lease(2)
    report(queues, failed(first.lease))
    assert leased(queues).job_id == first.lease.job_id


def test_a_job_lost_with_the_only_server_that_can_run_it_does_not_wait_for_another(
    queues: Queues,
) -> None:
    queues.servers.register(server(0, "math"))
    queues.servers.register(server(1, "chess"))
    queues.tasks.submit("train", [row("p0", "math")])
    leased(queues)
    queues.servers.register(server(0, "math"))  # it was started again, and lost the Job
    assert leased(queues).server_id == "agent-0"


def test_a_parked_job_gives_way_to_a_run_that_could_use_its_slot_alone(queues: Queues) -> None:
    for number, environment in enumerate(("math", "chess")):
        queues.servers.register(server(number, environment))
    queues.tasks.submit("train", [row("p0", "math"), row("p1", "chess")])
    queues.leases.lease(2)
    decide(queues, Hold(), Park())
    trainer = queues.connection.of_run("train", "trainer")
    queues.epochs.claim("train", Trainer(trainer_id="first", host="node-1", pid=11))
    queues.connection.do(lambda r: r.hset(trainer, "seen", 0))
    open_run(queues, "other")
    queues.tasks.submit("other", [row("q0", "chess")])
    assert [lease.job_id for lease in queues.leases.lend()] == ["train/p1/0"]
    assert_conserved(queues)


def test_places_ahead_of_servers_that_could_not_have_its_jobs_hold_up_no_other(
    queues: Queues,
) -> None:
    queues.servers.register(server(0, "math", ahead=1))
    queues.servers.register(server(1, "chess", ahead=9))
    queues.tasks.submit("train", [row(f"p{n}", "math") for n in range(2)])
    assert len(queues.leases.lease(16)) == 2


def test_two_servers_of_disjoint_environments_are_both_busy_while_both_have_work(
    queues: Queues,
) -> None:
    """As many rows of one kind as of the other, in an order of chance; Jobs end in one, too."""
    chance = random.Random(7)
    environments = {"agent-0": "math", "agent-1": "code"}
    for number, environment in enumerate(environments.values()):
        queues.servers.register(server(number, environment, slots=8))
    rows = [row(f"{name}{n}", name) for n in range(100) for name in environments.values()]
    chance.shuffle(rows)
    queues.tasks.submit("train", rows)
    running: list[Lease] = []
    busy: list[float] = []
    while any(queues.runs.read("train").backlog.jobs.values()):
        for each in queues.leases.lease(16):
            assert each.job.prompt.data_source == environments[each.lease.server_id]
            running.append(each.lease)
        waiting = queues.runs.read("train").backlog.jobs.values()
        if all(waiting) and len(waiting) == 2:
            busy += [slots / 8 for slots in queues.servers.busy_slots().values()]
        report(queues, completed(running.pop(chance.randrange(len(running)))))
    assert len(busy) > 100
    assert sum(busy) / len(busy) >= 0.95
    assert queues.runs.read("train").counters.attempts_failed == 0


def test_the_next_job_costs_the_same_among_many_kinds(
    make_queues: QueueMaker, admin_redis_url: str
) -> None:
    def cost(kinds: int) -> float:
        queues = make_queues(Queues, lease_seconds=60.0)
        open_run(queues, "train")
        names = [f"environment-{number}" for number in range(kinds)]
        queues.servers.register(server(0, *names, slots=MANY_KINDS))
        queues.tasks.submit(
            "train", [row(f"p{n}", names[n % kinds]) for n in range(2 * MANY_KINDS)]
        )
        before = commands(admin_redis_url)
        assert len(queues.leases.lease(MANY_KINDS)) == MANY_KINDS
        return sum((commands(admin_redis_url) - before).values()) / MANY_KINDS

    assert cost(MANY_KINDS) - cost(1) < 4


def commands(url: str) -> Counter[str]:
    with redis.Redis.from_url(url) as store:
        told = store.info("commandstats")
    return Counter({name: int(each["calls"]) for name, each in told.items()})


def test_an_orchestrator_keeps_what_a_server_can_run(queues: Queues) -> None:
    one = server(0, "math", tags=["gpu"])
    queues.servers.register(one)
    (status,) = queues.connection.ask(queues.servers.statuses())
    assert (status.environments, status.tags) == (one.environments, one.tags)
    queues.servers.register(msgspec.structs.replace(one, server_id="agent-1"))
    assert len(set(queues.connection.ask(queues.servers.offer()).classes.values())) == 1
