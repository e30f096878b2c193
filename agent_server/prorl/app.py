"""The ProRL door's HTTP API, by the names of the public contract."""

import socket

from flask import Flask, request

from agent_server.prorl.door import ProrlDoor
from agent_server.prorl.messages import (
    DoorAnswer,
    DoorStatus,
    DoorStopped,
    JobToCancel,
    LLMAddress,
    ProcessAnswer,
    ProcessRequest,
)
from rollyard.errors import Conflict, DeadlineExceeded, InvalidMessage, NotFound
from rollyard.tokens import Role
from serving.access import allow
from serving.bodies import MAX_PROMPTS_BYTES
from serving.lanes import Lane
from serving.routes import Routes


def create_door_app(server_id: str, door: ProrlDoor) -> Flask:
    routes = Routes(f"the ProRL door of agent server {server_id}", door.tokens)

    @routes.post("/start", allow(Role.SUBMIT), raises=(InvalidMessage,))
    def start_door() -> DoorAnswer:
        """Take jobs from now on."""
        door.start()
        return DoorAnswer("started")

    @routes.post("/stop", allow(Role.SUBMIT))
    def stop_door() -> DoorStopped:
        """End all jobs that came in here, and take no more."""
        return door.stop()

    @routes.get("/status", allow(Role.SUBMIT, Role.READ))
    def door_status() -> DoorStatus:
        """The jobs that wait and run."""
        return door.status()

    @routes.post(
        "/process",
        allow(Role.SUBMIT),
        raises=(Conflict, DeadlineExceeded),
        max_bytes=MAX_PROMPTS_BYTES,
        lane=Lane.CALLS,
    )
    def process(call: ProcessRequest) -> ProcessAnswer:
        """Produce one trajectory, and answer once it has ended."""
        return door.process(call, caller())

    @routes.post("/cancel", allow(Role.SUBMIT), raises=(NotFound,))
    def cancel_job(cancelled: JobToCancel) -> DoorAnswer:
        """End one job."""
        door.cancel(cancelled.job_id)
        return DoorAnswer("cancelled")

    @routes.post("/add_llm_server", allow(Role.SUBMIT))
    def add_llm_server(server: LLMAddress) -> DoorAnswer:
        """Use this LLM server, too, also if the door is not open yet."""
        door.llm.add(server.address)
        return DoorAnswer("added")

    @routes.post("/clear_llm_server", allow(Role.SUBMIT))
    def clear_llm_servers() -> DoorAnswer:
        """Use none of the LLM servers for any further turn."""
        door.llm.clear()
        return DoorAnswer("cleared")

    @routes.get("/metrics", allow(Role.READ))
    def door_metrics() -> str:
        """Metrics of these jobs for Prometheus."""
        return door.metrics.text()

    return routes.app


def caller() -> socket.socket | None:
    """The caller's connection, where the server that runs the app tells it."""
    found: socket.socket | None = request.environ.get("gunicorn.socket")
    return found
