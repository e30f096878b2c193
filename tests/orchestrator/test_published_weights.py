"""What was published: never forgotten, never below what was, and nothing runs on anything else."""

import msgspec
import pytest

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.queues.weights import MAX_VERSION_STEP
from orchestrator.trainers import Trainers
from orchestrator.why_weights import why_nothing_is_leased
from rollyard.errors import Conflict, NotFound
from rollyard.messages import (
    AgentServer,
    LLMNode,
    Prompt,
    RunSettings,
    WeightUpdate,
)
from rollyard.messages.base import MOST
from tests.orchestrator.moves import completed, leased
from tests.queue_fixtures import AnyQueues, QueueMaker


def update(version: int, path: str = "/checkpoint") -> WeightUpdate:
    return WeightUpdate(path=path, version=version)


def node(
    name: str = "llm",
    *,
    serves: int | None,
    published: WeightUpdate | None = None,
    trouble: str = "",
    digest: str = "",
) -> LLMNode:
    return LLMNode(
        node_id=name,
        url="http://llm",
        servers=(),
        model="/model",
        serves=serves,
        published=published,
        trouble=trouble,
        digest=digest,
    )


@pytest.fixture
def busy(patient_queues: Queues, server: AgentServer) -> Queues:
    return make_busy(patient_queues, server)


def make_busy(queues: AnyQueues, server: AgentServer) -> AnyQueues:
    """A run with jobs that wait, and free slots."""
    queues.runs.create(RunSettings(run_id="train", group_size=4))
    queues.servers.register(server)
    queues.tasks.submit("train", [Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})])
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    return queues


def test_a_version_used_once_is_never_used_again(queues: Queues) -> None:
    queues.weights.publish(update(5))
    for version, path in [(5, "/other"), (4, "/checkpoint"), (0, "/checkpoint")]:
        with pytest.raises(Conflict, match=f"version {version} does not rise: 5 was published"):
            queues.weights.publish(update(version, path))
    queues.weights.publish(update(5))  # the same again: its answer may have been lost
    assert queues.weights.version() == 5


def test_a_version_may_not_leap(queues: Queues) -> None:
    """It would use up every version below it."""
    queues.weights.publish(update(7))
    for version in (MOST, 7 + MAX_VERSION_STEP + 1):
        with pytest.raises(Conflict, match=f"more than {MAX_VERSION_STEP} above 7"):
            queues.weights.publish(update(version))
    queues.weights.publish(update(7 + MAX_VERSION_STEP))


def test_a_node_that_comes_back_is_told_what_was_published(queues: Queues) -> None:
    assert queues.weights.heartbeat(node(serves=None)) is None
    queues.weights.publish(update(5))
    assert queues.weights.heartbeat(node(serves=0)) == update(5)
    assert queues.weights.heartbeat(node("new", serves=None)) == update(5)


def test_nothing_is_leased_until_what_was_published_is_served(busy: Queues) -> None:
    busy.weights.heartbeat(node(serves=0))
    leased(busy)
    busy.weights.publish(update(5))
    assert busy.leases.lease(8) == []
    busy.weights.heartbeat(node(serves=0))
    busy.weights.heartbeat(node(serves=None))
    assert busy.leases.lease(8) == []
    busy.weights.heartbeat(node(serves=5))
    lease = leased(busy)
    assert busy.leases.begun("train")[lease.job_id] == 5


def test_a_node_without_its_weights_stops_the_leasing(busy: Queues) -> None:
    """Its LLM servers were started again, and serve the model as started."""
    busy.weights.publish(update(5))
    busy.weights.heartbeat(node(serves=5))
    running = leased(busy)
    busy.weights.heartbeat(node(serves=None))
    (answer,) = busy.leases.report([completed(running)], more=True)
    assert answer.assignment is None
    assert busy.leases.lease(8) == []
    busy.weights.heartbeat(node(serves=5))
    leased(busy)


def test_every_node_has_to_serve_what_was_published(busy: Queues) -> None:
    busy.weights.publish(update(5))
    busy.weights.heartbeat(node("a", serves=5))
    busy.weights.heartbeat(node("b", serves=4))
    assert busy.leases.lease(8) == []
    busy.weights.heartbeat(node("b", serves=5))
    leased(busy)


class AgedQueues(Queues):
    def silence(self, node_id: str, seconds: float) -> None:
        """The LLM node was last heard of so much earlier."""
        seen = self.connection.key("llm_seen")
        self.connection.do(lambda r: r.zincrby(seen, -seconds, node_id))


def test_a_node_that_is_gone_for_good_holds_nothing_up_once_it_is_dismissed(
    make_queues: QueueMaker, server: AgentServer
) -> None:
    queues = make_busy(make_queues(AgedQueues, lease_seconds=60.0), server)
    queues.weights.publish(update(5))
    queues.weights.heartbeat(node("a", serves=5))
    queues.weights.heartbeat(node("b", serves=4, digest="another model"))
    queues.silence("b", 3600.0)
    assert queues.leases.lease(8) == []
    assert "has not been heard of for 3600 s" in why(queues)
    assert "`rollyard dismiss b`" in why(queues)
    queues.weights.dismiss("b")
    leased(queues)
    assert why(queues) == ""
    assert [known.node_id for known in queues.weights.nodes()] == ["a"]


def test_a_node_that_is_silent_is_not_among_those_present(
    make_queues: QueueMaker, server: AgentServer
) -> None:
    queues = make_busy(make_queues(AgedQueues, lease_seconds=60.0), server)
    for name in ("a", "b"):
        queues.weights.heartbeat(node(name, serves=0))
    assert [known.node_id for known in queues.weights.present()] == ["a", "b"]
    queues.silence("a", 3600.0)
    assert [known.node_id for known in queues.weights.present()] == ["b"]


def test_a_node_that_lives_is_not_dismissed(busy: Queues) -> None:
    busy.weights.heartbeat(node(serves=None))
    with pytest.raises(Conflict, match="LLM node 'llm' was heard of 0 s ago; stop it"):
        busy.weights.dismiss("llm")
    assert busy.leases.lease(8) == []
    with pytest.raises(NotFound, match="no LLM node 'other'"):
        busy.weights.dismiss("other")


def test_a_node_that_leaves_holds_nothing_up(busy: Queues) -> None:
    busy.weights.publish(update(5))
    busy.weights.heartbeat(node("a", serves=5))
    busy.weights.heartbeat(node("b", serves=4))
    assert busy.leases.lease(8) == []
    busy.weights.leave("b")
    leased(busy)
    busy.weights.leave("nobody")
    assert [known.node_id for known in busy.weights.nodes()] == ["a"]


def test_the_dispatcher_is_woken_when_the_weights_are_on(busy: Queues) -> None:
    busy.weights.heartbeat(node(serves=None))
    busy.leases.wait_for_work(0)  # takes the mark of what came before
    busy.weights.heartbeat(node(serves=0))
    busy.leases.wait_for_work(60)  # returns at once
    leased(busy)


def test_what_a_node_knows_counts_when_redis_has_forgotten(queues: Queues) -> None:
    queues.weights.heartbeat(node("a", serves=5, published=update(5)))
    assert queues.weights.version() == 5
    assert queues.weights.heartbeat(node("b", serves=None)) == update(5)
    assert queues.weights.heartbeat(node("c", serves=4, published=update(4, "/older"))) == update(5)
    with pytest.raises(Conflict):
        queues.weights.publish(update(5, "/other"))


def test_a_checkpoint_that_only_one_node_knows_is_told_to_the_others(queues: Queues) -> None:
    queues.weights.heartbeat(node("a", serves=5, published=update(5, "")))
    queues.weights.heartbeat(node("b", serves=5, published=update(5)))
    assert queues.weights.heartbeat(node("a", serves=None)) == update(5)


def why(queues: Queues) -> str:
    return why_nothing_is_leased(queues.connection.ask(queues.weights.serving()))


def test_the_wait_for_weights_has_a_name(busy: Queues) -> None:
    operators = Operators(busy)
    busy.weights.heartbeat(node(serves=0))
    assert why(busy) == ""
    busy.weights.publish(update(5))
    busy.weights.heartbeat(node(serves=0))
    sentence = why(busy)
    assert sentence.startswith(
        "the LLM servers of node 'llm' serve weight version 0; version 5 is being put on them since"
    )
    (server,) = busy.servers.registered()
    assert sentence in operators.why(server.server_id).reason
    assert sentence in operators.why("train").reason
    assert sentence in operators.why("train/p0/0").reason


def test_a_checkpoint_that_is_gone_is_named_with_what_to_do(queues: Queues) -> None:
    queues.weights.publish(update(5))
    queues.weights.heartbeat(
        node(serves=None, trouble="no checkpoint at /checkpoint; publish again")
    )
    assert why(queues) == (
        "the LLM servers of node 'llm' do not all serve one weight version yet, and version 5 "
        "cannot be put on them: no checkpoint at /checkpoint; publish again"
    )


def test_no_job_begins_under_weights_that_its_batch_does_not_take(
    patient_queues: Queues, server: AgentServer
) -> None:
    """It would be begun again at once, for ever."""
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2, max_staleness=1))
    queues.servers.register(server)
    queues.tasks.submit("train", [Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})])
    request = BatchRequested(batch_id="b", requested_batch_size=1, weight_version=6)
    queues.events.tell("train", request)
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    assert queues.leases.lease(8) == []
    assert Operators(queues).why("train").reason == (
        "its batch takes tokens of weight version 5 or newer, and version 0 was published last; "
        "publish version 5"
    )
    queues.weights.heartbeat(node(serves=0))
    queues.weights.publish(update(5))
    queues.weights.heartbeat(node(serves=5))
    leased(queues)


OURS, OTHER = "0123456789abcdef", "fedcba9876543210"


def test_a_run_does_not_go_on_with_another_model(busy: Queues) -> None:
    busy.weights.heartbeat(node(serves=0, digest=OURS))
    leased(busy)
    busy.weights.heartbeat(node(serves=0, digest=OTHER))
    assert busy.leases.lease(8) == []
    sentence = (
        f"run 'train' began with model {OURS}, and the LLM servers have model {OTHER}; start them "
        "with the model of before, or go on with another run_id"
    )
    assert Operators(busy).why("train").reason == sentence
    with pytest.raises(Conflict, match="go on with another run_id"):
        Trainers(busy).create_run(busy.runs.read("train").settings)
    busy.runs.create(RunSettings(run_id="another", group_size=4))
    Trainers(busy).create_run(RunSettings(run_id="another", group_size=4))
    busy.weights.heartbeat(node(serves=0, digest=OURS))
    leased(busy)


def test_an_agent_server_with_another_model_gets_no_jobs(busy: Queues, server: AgentServer) -> None:
    busy.servers.register(msgspec.structs.replace(server, digest=OTHER))
    busy.weights.heartbeat(node(serves=0, digest=OURS))
    assert busy.leases.lease(8) == []
    assert f"it has model {OTHER} and the LLM servers have {OURS}; give both one --model" in (
        Operators(busy).why(server.server_id).reason
    )
    busy.servers.register(msgspec.structs.replace(server, server_id="agent-1", digest=OURS))
    assert leased(busy).server_id == "agent-1"


def test_llm_nodes_with_different_models_get_no_jobs(busy: Queues) -> None:
    busy.weights.heartbeat(node("a", serves=0, digest=OURS))
    busy.weights.heartbeat(node("b", serves=0, digest=OTHER))
    assert busy.leases.lease(8) == []
    assert why(busy) == (
        f"the LLM nodes have different models: 'a' has {OURS}, 'b' has {OTHER}; give all of them "
        "one --model"
    )
    busy.weights.heartbeat(node("b", serves=0, digest=OURS))
    leased(busy)


def test_weights_that_all_refuse_are_withdrawn_though_earlier_ones_are_confirmed_late(
    patient_queues: Queues,
) -> None:
    queues = patient_queues
    queues.weights.publish(update(1))
    queues.weights.publish(update(2, "/refused"))
    queues.weights.confirm(update(1), ["llm"])
    queues.weights.withdraw(update(2, "/refused"))
    assert queues.weights.version() == 1
