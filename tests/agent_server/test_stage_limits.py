"""The time of Jobs whose limit is counted over their stages together."""

from hypothesis import given
from hypothesis import strategies as st

from agent_server.environments.in_thread import in_thread
from agent_server.jobs.attempt import Attempt, Stage
from agent_server.jobs.stage_limits import AllStages, EachStage
from rollyard.messages import Limits
from tests.agent_server.fakes import EchoEnvironment, assign, make_job

seconds = st.floats(0.01, 1000.0)


class Spent(Attempt):
    """An attempt that was in INIT for so long."""

    def __init__(self, init_seconds: float, job_seconds: float) -> None:
        job = make_job(limits=Limits(job_seconds=job_seconds))
        super().__init__(assign(job), in_thread(EchoEnvironment).make)
        self._seconds["init_seconds"] = init_seconds


@given(limit=seconds, init=seconds, usual=seconds)
def test_init_and_run_together_take_no_longer_than_the_limit(
    limit: float, init: float, usual: float
) -> None:
    limits, attempt = AllStages(), Spent(init, limit)
    assert limits.seconds(attempt, Stage.INIT, usual) == min(usual, limit)
    run = limits.seconds(attempt, Stage.RUN, limit)
    assert run == max(0.0, limit - init)
    assert limits.seconds(attempt, Stage.EVAL, usual) == min(usual, limit)


def test_each_stage_has_its_usual_time_otherwise() -> None:
    limits, attempt = EachStage(), Spent(7.0, 5.0)
    assert [limits.seconds(attempt, stage, 20.0) for stage in Stage] == [20.0] * 3
