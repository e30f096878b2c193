"""The NeMo-Gym door's HTTP API, by the names of NeMo-Gym's contract."""

import json
from typing import Any

from flask import Flask

from agent_server.nemo_gym.aggregates import aggregate
from agent_server.nemo_gym.door import NemoGymDoor
from agent_server.nemo_gym.messages import RunAnswer, RunsAggregated, RunsToAggregate
from agent_server.prorl.app import caller
from rollyard.errors import Conflict, DeadlineExceeded
from rollyard.tokens import Role
from serving.access import allow
from serving.bodies import MAX_BODY_BYTES, MAX_PROMPTS_BYTES
from serving.lanes import Lane
from serving.routes import Routes


def create_nemo_gym_app(server_id: str, door: NemoGymDoor) -> Flask:
    routes = Routes(f"the NeMo-Gym door of agent server {server_id}", door.tokens)

    @routes.post(
        "/run",
        allow(Role.SUBMIT),
        raises=(Conflict, DeadlineExceeded),
        max_bytes=MAX_PROMPTS_BYTES,
        lane=Lane.CALLS,
    )
    def run(row: dict[str, Any]) -> RunAnswer:
        """Produce one trajectory, and answer once it has ended."""
        return door.run(row, caller())

    @routes.post("/aggregate_metrics", allow(Role.SUBMIT), max_bytes=MAX_BODY_BYTES)
    def aggregate_metrics(runs: RunsToAggregate) -> RunsAggregated:
        """Statistics of the numbers in answers of /run."""
        return aggregate(runs.verify_responses)

    @routes.get("/global_config_dict_yaml", allow(Role.SUBMIT, Role.READ))
    def global_config_dict_yaml() -> str:
        """Where this agent server is, for a collector that takes it for NeMo-Gym's head server."""
        return json.dumps(json.dumps(door.config))

    @routes.get("/metrics", allow(Role.READ))
    def nemo_gym_metrics() -> str:
        """Metrics of these jobs for Prometheus."""
        return door.metrics.text()

    return routes.app
