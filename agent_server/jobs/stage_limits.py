"""The time that an attempt has in each stage. Waits for a place, and time parked, count nowhere."""

from typing import Protocol

from agent_server.jobs.attempt import Attempt, Stage


class StageLimits(Protocol):
    def seconds(self, attempt: Attempt, stage: Stage, usual: float) -> float:
        """Seconds for the stage that the attempt is about to enter; `usual` if they were counted
        for each stage alone."""
        ...


class EachStage:
    """`StageLimits` of Jobs whose own limit is RUN's."""

    def seconds(self, attempt: Attempt, stage: Stage, usual: float) -> float:
        return usual


EACH_STAGE = EachStage()


class AllStages:
    """`StageLimits` of Jobs whose own limit is that of INIT and RUN together; what they have left
    by then may be graded for as long again."""

    def seconds(self, attempt: Attempt, stage: Stage, usual: float) -> float:
        spent = attempt.timings.init_seconds if stage is Stage.RUN else 0.0
        return min(usual, max(0.0, attempt.job.limits.job_seconds - spent))
