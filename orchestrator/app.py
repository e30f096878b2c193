"""The orchestrator's HTTP API for trainers, agent servers and LLM nodes.

What only the trainer reads crosses it packed, as it came.
"""

from typing import Annotated

from flask import Flask, request

from orchestrator.operator_routes import add_operator_routes
from orchestrator.service import Orchestrator
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
    Batch,
    BatchRequest,
    Claim,
    Epoch,
    Farewell,
    Heartbeat,
    HeartbeatReply,
    LLMNode,
    Name,
    PackedBatch,
    PackedResult,
    Prompt,
    Reported,
    Result,
    RunSettings,
    RunStatus,
    ScoreRequest,
    Scores,
    SignOfLife,
    ToServe,
    Trainer,
    WaitSeconds,
    WeightReport,
    WeightUpdate,
    WeightVersion,
)
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import allow
from serving.bodies import MAX_BODY_BYTES, MAX_LEASES_BYTES, MAX_PROMPTS_BYTES
from serving.declaration import OnWire
from serving.routes import Routes


def create_app(orchestrator: Orchestrator, tokens: Tokens = NO_TOKENS) -> Flask:
    routes = Routes("orchestrator", tokens, raises=(QueueUnavailable,))
    add_run_routes(routes, orchestrator)
    add_trainer_routes(routes, orchestrator)
    add_batch_routes(routes, orchestrator)
    add_weight_routes(routes, orchestrator)
    add_server_routes(routes, orchestrator)
    add_operator_routes(routes, orchestrator)
    return routes.app


def add_run_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    trainers = orchestrator.trainers

    @routes.post("/runs", allow(Role.SUBMIT), status=201, raises=(Conflict,))
    def create_run(settings: RunSettings) -> RunStatus:
        """Create a Run; one that exists with the same settings is left as it is."""
        return trainers.create(settings)

    @routes.get("/runs/<run_id>", allow(Role.SUBMIT, Role.READ), raises=(NotFound, TrainerReplaced))
    def run_status(
        run_id: Name,
        *,
        wait_seconds: WaitSeconds = 0.0,
        batch: Name | None = None,
        exhausted: bool = False,
        epoch: Epoch | None = None,
    ) -> RunStatus:
        """Status of a Run, after `wait_seconds`, or once it wants a Prompt (with `exhausted`: once
        nothing of it runs) or has a Batch (with `batch`: has that one, or no longer)."""
        return trainers.wait(run_id, wait_seconds, batch=batch, exhausted=exhausted, epoch=epoch)

    @routes.post(
        "/runs/<run_id>/retry",
        allow(Role.SUBMIT),
        raises=(NotFound, TrainerReplaced, DeadlineExceeded),
    )
    def retry_run(run_id: Name, *, epoch: Epoch | None = None) -> RunStatus:
        """Continue a Run whose Groups died one after the other: it wants Prompts again."""
        return trainers.retry(run_id, epoch=epoch)

    @routes.post(
        "/runs/<run_id>/close",
        allow(Role.SUBMIT),
        raises=(NotFound, TrainerReplaced, DeadlineExceeded),
    )
    def close_run(run_id: Name, *, epoch: Epoch | None = None) -> RunStatus:
        """Drop all unfinished work of a Run for good; closing again changes nothing."""
        return trainers.close(run_id, epoch=epoch)


def add_trainer_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    trainers = orchestrator.trainers

    @routes.post("/runs/<run_id>/trainer", allow(Role.SUBMIT), raises=(NotFound,))
    def claim_run(run_id: Name, trainer: Trainer) -> Claim:
        """Take a Run over; calls that name the epoch of an earlier trainer are refused from now
        on."""
        return trainers.claim(run_id, trainer)

    @routes.post(
        "/runs/<run_id>/trainer/heard", allow(Role.SUBMIT), raises=(NotFound, TrainerReplaced)
    )
    def trainer_heard(run_id: Name, sign: SignOfLife) -> None:
        """Sign of life of a trainer, whose parked Jobs keep their Slots unless it is `leaving`."""
        trainers.heard(run_id, sign)

    @routes.post(
        "/runs/<run_id>/prompts",
        allow(Role.SUBMIT),
        status=202,
        raises=(InvalidMessage, NotFound, Conflict, Unavailable),
        max_bytes=MAX_PROMPTS_BYTES,
    )
    def feed(run_id: Name, prompts: list[Prompt], *, epoch: Epoch | None = None) -> None:
        """Put the Prompts' Jobs on the task queue, all or none; a Prompt fed again changes
        nothing."""
        trainers.feed(run_id, prompts, epoch=epoch)

    @routes.get("/runs/<run_id>/prompts", allow(Role.SUBMIT), raises=(NotFound, TrainerReplaced))
    def prompts(run_id: Name, *, epoch: Epoch | None = None) -> list[str]:
        """Ids of the Prompts fed that are neither dropped nor in an acknowledged Batch."""
        return trainers.prompts(run_id, epoch=epoch)


def add_batch_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    trainers = orchestrator.trainers

    @routes.post(
        "/runs/<run_id>/batches",
        allow(Role.SUBMIT),
        status=202,
        raises=(NotFound, Conflict, DeadlineExceeded),
    )
    def request_batch(
        run_id: Name, request: BatchRequest, *, epoch: Epoch | None = None
    ) -> RunStatus:
        """Ask for a Batch; asking for the same one again changes nothing."""
        return trainers.request(run_id, request, epoch=epoch)

    @routes.get(
        "/runs/<run_id>/batches/<batch_id>", allow(Role.SUBMIT), raises=(NotFound, TrainerReplaced)
    )
    def fetch_batch(
        run_id: Name, batch_id: Name, *, epoch: Epoch | None = None
    ) -> Annotated[PackedBatch, OnWire(Batch)]:
        """A complete Batch; it can be fetched again until it is acknowledged."""
        return trainers.fetch(run_id, batch_id, epoch=epoch)

    @routes.post(
        "/runs/<run_id>/batches/<batch_id>/ack",
        allow(Role.SUBMIT),
        raises=(NotFound, Conflict, DeadlineExceeded),
    )
    def acknowledge_batch(run_id: Name, batch_id: Name, *, epoch: Epoch | None = None) -> None:
        """Acknowledge a Batch that was trained on; acknowledging again changes nothing."""
        trainers.acknowledge(run_id, batch_id, epoch=epoch)


def add_weight_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    nodes = orchestrator.llm_nodes
    failures = (InvalidMessage, Conflict, LLMUnavailable, Unavailable, DeadlineExceeded)

    @routes.post("/weights", allow(Role.SUBMIT), raises=failures)
    def update_weights(update: WeightUpdate) -> WeightReport:
        """Load new weights on every LLM server."""
        return nodes.update(update)

    @routes.post("/runs/<run_id>/weights", allow(Role.SUBMIT), raises=(NotFound, *failures))
    def update_weights_of_run(
        run_id: Name, update: WeightUpdate, *, epoch: Epoch | None = None
    ) -> WeightReport:
        """Load new weights on every LLM server, as the trainer that drives the Run."""
        return nodes.update(update, run_id, epoch=epoch)

    @routes.get("/weights", allow(Role.SUBMIT, Role.READ), raises=failures)
    def weight_version() -> WeightVersion:
        """The highest weight version ever published."""
        return nodes.version()

    @routes.post("/score", allow(Role.SUBMIT), raises=failures)
    def score(request: ScoreRequest) -> Scores:
        """The logprobs that every LLM server gives to these tokens."""
        return nodes.score(request)


def add_server_routes(routes: Routes, orchestrator: Orchestrator) -> None:
    @routes.post("/servers", allow(Role.WORKER), status=201, raises=(Unavailable,))
    def register(server: AgentServer) -> None:
        """Register an agent server, with all its Slots free."""
        orchestrator.register(server, request.remote_addr or "")

    @routes.post("/servers/leave", allow(Role.WORKER), max_bytes=MAX_LEASES_BYTES)
    def leave(last: Farewell) -> None:
        """Note that an agent server leaves; the Jobs that it still held are requeued."""
        orchestrator.queues.servers.leave(last.server_id)

    @routes.post("/heartbeats", allow(Role.WORKER), max_bytes=MAX_LEASES_BYTES)
    def heartbeat(alive: Heartbeat) -> HeartbeatReply:
        """Heartbeat of an agent server; the answer names the Leases to stop and to park."""
        return orchestrator.queues.servers.heartbeat(alive)

    @routes.post("/results", allow(Role.WORKER), raises=(StaleAttempt,), max_bytes=MAX_BODY_BYTES)
    def report(
        results: Annotated[list[PackedResult], OnWire(list[Result])], *, more: bool = False
    ) -> list[Reported]:
        """Report the Results of attempts. With `more`, the answers may bring their Slots' next
        Jobs."""
        return orchestrator.report(results, more=more)

    @routes.post("/llm-nodes", allow(Role.WORKER), raises=(Unavailable,))
    def llm_heartbeat(node: LLMNode) -> ToServe:
        """Heartbeat of an LLM node; the answer says which weights its servers should serve."""
        return orchestrator.llm_heartbeat(node, request.remote_addr or "")
