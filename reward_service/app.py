"""The reward service's HTTP API."""

from flask import Flask

from reward_service.service import RewardService
from rollyard.errors import GraderFailed, QueueUnavailable, Unavailable
from rollyard.tokens import NO_TOKENS, Role, Tokens
from serving.access import EVERYONE, allow
from serving.bodies import MAX_PROMPTS_BYTES
from serving.routes import Routes


def create_app(service: RewardService, tokens: Tokens = NO_TOKENS) -> Flask:
    routes = Routes("reward service", tokens)
    routes.post(
        "/compute_score",
        allow(Role.WORKER, Role.SUBMIT),
        raises=(GraderFailed, Unavailable, QueueUnavailable),
        max_bytes=MAX_PROMPTS_BYTES,
    )(service.compute_score)
    routes.get("/status", allow(Role.READ))(service.status)

    @routes.get("/readyz", EVERYONE, raises=(QueueUnavailable,))
    def readyz() -> None:
        """Whether tasks can be enqueued."""
        service.check_ready()

    @routes.get("/metrics", allow(Role.READ))
    def prometheus() -> str:
        """Metrics for Prometheus."""
        return service.metrics.text()

    return routes.app
