"""The orchestrator's HTTP API for trainers, agent servers and LLM nodes.

A route calls the method that carries it out, whose signature and docstring declare the route. What
only the trainer reads crosses it packed, as it came.
"""

from flask import Flask, request

from orchestrator.operator_routes import add_operator_routes
from orchestrator.own_runs import check_no_other_run
from orchestrator.service import Orchestrator
from orchestrator.trainers import Trainers
from rollyard.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidMessage,
    LLMUnavailable,
    NotFound,
    QueueUnavailable,
    StaleAttempt,
    TrainerReplaced,
    Unavailable,
)
from rollyard.messages import (
    AgentServer,
    Epoch,
    Farewell,
    LLMFarewell,
    LLMNode,
    LLMNodeList,
    Name,
    Registered,
    RunSettings,
    RunStatus,
    ToServe,
    TrainerServers,
    WeightReport,
    WeightUpdate,
)
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import Scope, allow, check_run
from serving.bodies import MAX_BODY_BYTES, MAX_LEASES_BYTES, MAX_PROMPTS_BYTES
from serving.routes import Routes

SUBMIT = allow(Role.SUBMIT)
WORKER = allow(Role.WORKER)
RUN = "/runs/<run_id>"
BATCH = f"{RUN}/batches/<batch_id>"


def create_app(orchestrator: Orchestrator, tokens: Tokens = NO_TOKENS) -> Flask:
    routes = Routes("orchestrator", tokens, raises=(QueueUnavailable,))
    add_run_routes(routes, orchestrator.trainers)
    add_batch_routes(routes, orchestrator.trainers)
    add_weight_routes(routes, orchestrator)
    add_server_routes(routes, orchestrator)
    add_operator_routes(routes, orchestrator)
    return routes.app


def add_run_routes(routes: Routes, trainers: Trainers) -> None:
    replaced = NotFound, TrainerReplaced
    late = NotFound, TrainerReplaced, DeadlineExceeded
    unfit = InvalidMessage, NotFound, Conflict, Unavailable

    @routes.post("/runs", SUBMIT, status=201, raises=(Conflict,), scope=Scope.WITHIN)
    def create_run(settings: RunSettings) -> RunStatus:
        """Create a Run; one that exists with the same settings is left as it is."""
        check_run(settings.run_id)
        return trainers.create_run(settings)

    routes.get(RUN, allow(Role.SUBMIT, Role.READ), raises=replaced)(trainers.run_status)
    routes.post(f"{RUN}/retry", SUBMIT, raises=late)(trainers.retry_run)
    routes.post(f"{RUN}/close", SUBMIT, raises=late)(trainers.close_run)
    routes.post(f"{RUN}/trainer", SUBMIT, raises=(NotFound,))(trainers.claim_run)
    routes.post(f"{RUN}/trainer/heard", SUBMIT, raises=replaced)(trainers.trainer_heard)
    routes.post(f"{RUN}/prompts", SUBMIT, status=202, raises=unfit, max_bytes=MAX_PROMPTS_BYTES)(
        trainers.feed
    )
    routes.get(f"{RUN}/prompts", SUBMIT, raises=replaced)(trainers.prompts)


def add_batch_routes(routes: Routes, trainers: Trainers) -> None:
    late = NotFound, Conflict, DeadlineExceeded
    routes.post(f"{RUN}/batches", SUBMIT, status=202, raises=late)(trainers.request_batch)
    routes.get(BATCH, SUBMIT, raises=(NotFound, TrainerReplaced))(trainers.fetch_batch)
    routes.post(f"{BATCH}/ack", SUBMIT, raises=late)(trainers.acknowledge_batch)


def add_weight_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    nodes = orchestrator.llm_nodes
    failures = (InvalidMessage, Conflict, LLMUnavailable, Unavailable, DeadlineExceeded)

    @routes.post("/weights", SUBMIT, raises=failures)
    def update_weights(update: WeightUpdate) -> WeightReport:
        """Load new weights on every LLM server."""
        return nodes.update(update)

    @routes.post(f"{RUN}/weights", SUBMIT, raises=(NotFound, *failures))
    def update_weights_of_run(
        run_id: Name, update: WeightUpdate, *, epoch: Epoch | None = None
    ) -> WeightReport:
        """Load new weights on every LLM server, as the trainer that drives the Run. With a token of
        some Runs alone, only while no other Run is open: its trajectories would change."""
        check_no_other_run(orchestrator.queues.runs)
        return nodes.update(update, run_id, epoch=epoch)

    @routes.post("/llm-servers", SUBMIT, raises=(Conflict,))
    def announce(servers: TrainerServers) -> None:
        """Announce a trainer's own LLM servers. It is heard of with every announcement, as an LLM
        node with every heartbeat."""
        nodes.announce(servers)

    readers = allow(Role.SUBMIT, Role.READ)
    routes.get("/weights", readers, raises=failures, scope=Scope.SHARED)(nodes.weight_version)
    routes.post("/score", SUBMIT, raises=failures, scope=Scope.SHARED)(nodes.score)


def add_server_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    servers = orchestrator.queues.servers

    @routes.post("/servers", WORKER, status=201, raises=(Unavailable,))
    def register(server: AgentServer) -> Registered:
        """Register an agent server, with all its Slots free."""
        return orchestrator.register(server, request.remote_addr or "")

    @routes.post("/servers/leave", WORKER, max_bytes=MAX_LEASES_BYTES)
    def leave(last: Farewell) -> None:
        """Note that an agent server leaves; the Jobs that it still held are requeued."""
        servers.leave(last.server_id)

    routes.post("/heartbeats", WORKER, max_bytes=MAX_LEASES_BYTES)(servers.heartbeat)
    routes.post("/results", WORKER, raises=(StaleAttempt,), max_bytes=MAX_BODY_BYTES)(
        orchestrator.report
    )

    @routes.post("/llm-nodes", WORKER, raises=(Unavailable,))
    def llm_heartbeat(node: LLMNode) -> ToServe:
        """Heartbeat of an LLM node; the answer says which weights its servers should serve."""
        return orchestrator.llm_heartbeat(node, request.remote_addr or "")

    @routes.get("/llm-nodes", WORKER)
    def llm_nodes() -> LLMNodeList:
        """The LLM nodes that live, with the proxies that agent servers may ask."""
        return LLMNodeList(orchestrator.queues.weights.present())

    @routes.post("/llm-nodes/leave", WORKER)
    def llm_leave(last: LLMFarewell) -> None:
        """Note that an LLM node leaves: nothing waits for its servers any more."""
        orchestrator.queues.weights.leave(last.node_id)
