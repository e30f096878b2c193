"""What is said of Jobs that no agent server can run, wherever somebody asks."""

import pytest

from launch.doctor.check import CheckVerdict
from launch.doctor.queues import run_checks
from launch.status import listings
from orchestrator.kinds import JobKind, read_kind, stored_kind
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.sampling.decisions import Open
from orchestrator.sampling.state import SamplerState, Wanted
from orchestrator.trainers import Trainers
from rollyard.errors import InvalidMessage
from rollyard.messages import (
    AgentServer,
    Checkup,
    FleetStatus,
    LLMNode,
    Prompt,
    RunSettings,
    Storage,
)
from tests.orchestrator.moves import conclude

NOTHING_ELSE = "no agent server has the environment 'swe' with the tags gpu and large"


@pytest.fixture
def queues(patient_queues: Queues) -> Queues:
    """An open Run, a server with the environment `math`, and an LLM node that is ready."""
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2, tags=("large", "gpu")))
    wanted = Wanted(batch_id="b", requested_batch_size=1, weight_version=0)
    conclude(queues, Open(), events=0, state=SamplerState(wanted=[wanted]))
    queues.servers.register(server("math"))
    node = LLMNode(node_id="node", url="http://127.0.0.1:9", servers=(), model="m", serves=0)
    queues.weights.heartbeat(node)
    return queues


def server(*environments: str, number: int = 0, tags: tuple[str, ...] = ()) -> AgentServer:
    return AgentServer(
        server_id=f"agent-{number}",
        url="http://127.0.0.1:9",
        slots=2,
        environments=environments,
        tags=tags,
    )


def feed(queues: Queues, name: str, environment: str, tags: list[str] | None = None) -> None:
    instance = {"data_source": environment} | ({} if tags is None else {"tags": tags})
    queues.tasks.submit("train", [Prompt(prompt_id=name, instance=instance)])


def test_an_environment_that_no_server_has_is_named_with_those_that_there_are(
    queues: Queues,
) -> None:
    feed(queues, "p0", "swe")
    why = Operators(queues).why
    assert why("train").reason.startswith(f"{NOTHING_ELSE}: 2 jobs wait for one; start one with")
    sentence = (
        f"{NOTHING_ELSE}; start one with --tag gpu --tag large that has the package of this "
        "environment, or correct data_source: they have math; 0 jobs of its run and kind are "
        "before it"
    )
    assert why("train/p0/0").reason == sentence


def test_a_tag_that_no_server_of_the_environment_has_is_named_with_theirs(queues: Queues) -> None:
    queues.servers.register(server("swe", number=1, tags=("large",)))
    feed(queues, "p0", "swe")
    assert (
        Operators(queues)
        .why("train/p0/0")
        .reason.startswith(
            f"{NOTHING_ELSE}; start one with --tag gpu --tag large; of those with the environment "
            "agent-1 has large"
        )
    )


def test_a_run_that_goes_on_beside_it_says_both(queues: Queues) -> None:
    feed(queues, "p0", "math", [])
    feed(queues, "p1", "swe")
    queues.leases.lease(1)
    reason = Operators(queues).why("train").reason
    assert "the trainer's dataloader owes" in reason
    assert reason.index("the trainer's dataloader owes") < reason.index(NOTHING_ELSE)
    assert Trainers(queues).run_status("train").unoffered in reason


def test_a_job_waits_for_the_slots_of_servers_that_can_run_it_alone(queues: Queues) -> None:
    queues.servers.register(server("chess", number=1))
    for name in ("p0", "p1"):
        feed(queues, name, "math", [])
    queues.leases.lease(4)
    why = Operators(queues).why
    assert why("train/p1/0").reason.startswith(
        "none of the 2 slots of servers that have the environment 'math' is free"
    )
    assert why("agent-1").reason == (
        "agent-1 has 2 free slots, and can run none of the 2 jobs that are queued"
    )
    queues.servers.drain("agent-0")
    assert why("train/p1/0").reason.startswith("no agent server takes jobs: agent-0 is draining")


def test_the_orchestrator_is_not_ready_while_all_that_waits_can_run_nowhere(
    queues: Queues,
) -> None:
    operators = Operators(queues)
    assert operators.why_nothing_runs() == ""
    feed(queues, "p0", "swe")
    assert operators.why_nothing_runs().startswith(NOTHING_ELSE)
    feed(queues, "p1", "math", [])
    assert operators.why_nothing_runs() == ""
    queues.leases.lease(4)
    assert operators.why_nothing_runs() == ""


def test_the_status_and_the_doctor_name_it(queues: Queues) -> None:
    queues.servers.register(server("swe", number=1, tags=("large",)))
    feed(queues, "p0", "swe")
    status = FleetStatus(
        runs=Trainers(queues).statuses(),
        servers=queues.connection.ask(queues.servers.statuses()),
        llm_nodes=(),
    )
    checkup = Checkup(storage=Storage(kind=""), stray_leases=(), events_waiting={})
    verdicts = {check.name: check for check in run_checks(status, checkup)}
    assert verdicts["placement"].verdict is CheckVerdict.FAILED
    assert verdicts["placement"].finding.startswith(f"train: {NOTHING_ELSE}")
    servers, *_ = listings(status)
    assert "swe (large)" in "\n".join(servers.lines())
    queues.servers.register(server("swe", number=2, tags=("large", "gpu")))
    (run,) = Trainers(queues).statuses()
    assert run.unoffered == ""


@pytest.mark.parametrize("tags", ["gpu", [1], ["two words"], {"gpu": True}])
def test_a_column_of_tags_that_means_something_else_is_refused(tags: object) -> None:
    with pytest.raises(InvalidMessage, match="'tags' of prompt 'p0' are not a list of tags"):
        Prompt(prompt_id="p0", instance={"data_source": "math", "tags": tags})


def test_a_kind_is_read_back_as_it_was_stored() -> None:
    for kind in (JobKind("mäth \n\"'[]"), JobKind("swe", ("gpu", "large"))):
        assert read_kind(stored_kind(kind).encode()) == kind


def test_tags_that_are_one_text_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="tags must be a list of names, got 'gpu'"):
        RunSettings(run_id="train", tags="gpu")  # type: ignore[arg-type]  # as a user may write it
