"""Rewards of a service, and of this machine when the service cannot be had."""

import msgspec
import structlog

from agent_server.rewards.local import LocalRewards, NoGrader
from agent_server.rewards.protocol import ScoreTask
from agent_server.rewards.remote import RemoteRewards
from rollyard.errors import Unavailable
from rollyard.messages import Grade

log = structlog.get_logger()

GRADED_LOCALLY = "graded_locally"
"""Metric of a grade that the service should have given."""


class FallbackRewards:
    """`Rewards` of `service`, else of `local`."""

    def __init__(self, service: RemoteRewards, local: LocalRewards) -> None:
        self._service = service
        self._local = local

    def score(self, task: ScoreTask) -> Grade:
        try:
            return self._service.score(task)
        except Unavailable as error:
            missed = error
        log.warning("reward_service_unavailable", reason=missed.message)
        try:
            grade = self._local.score(task)
        except NoGrader:
            raise missed from None
        except Unavailable as error:
            both = f"{missed.message}; and here {error.message}"
            raise Unavailable(both, fix=error.fix) from error
        return msgspec.structs.replace(grade, metrics={**grade.metrics, GRADED_LOCALLY: 1.0})

    def close(self) -> None:
        self._service.close()
        self._local.close()
