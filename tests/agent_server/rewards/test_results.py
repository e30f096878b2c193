"""A reward that fails is an infrastructure failure with the reason, and never a 0."""

import msgspec
import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import in_thread
from agent_server.rewards.fallback import FallbackRewards
from agent_server.rewards.local import LocalRewards, LocalRewardSettings
from agent_server.rewards.protocol import Rewards, ScoreTask
from agent_server.rewards.remote import RemoteRewards, RemoteRewardSettings
from launch.free_ports import free_port
from rollyard.messages import Blame, Grade, Outcome, Result
from tests.agent_server.fakes import EchoEnvironment, Says, assign, make_job
from tests.agent_server.rewards.graders import points
from tests.agent_server.rewards.test_needs import GradedElsewhere
from tests.agent_server.running import Start


def result_of(start: Start, template: ChatTemplate, rewards: Rewards) -> Result:
    kinds = {"graded": in_thread(GradedElsewhere, rewards)}
    running = start(Says(template, "bye"), EchoEnvironment, hosted=kinds)
    running.runner.accept(assign(make_job(instance={"data_source": "graded"})))
    return running.result()


class Asks:
    """`Rewards` of one grader, whatever is asked for."""

    def __init__(self, rewards: Rewards, grader: str) -> None:
        self._rewards = rewards
        self._grader = grader

    def score(self, task: ScoreTask) -> Grade:
        return self._rewards.score(msgspec.structs.replace(task, data_source=self._grader))


@pytest.mark.parametrize(
    ("grader", "blame", "reason"),
    [
        ("leaves", Blame.ROW, "the grader of 'leaves' exited with status 7"),
        ("raises", Blame.ROW, "the grader of 'raises' failed: ValueError"),
        ("lacks_a_judge", Blame.SERVER, "the judge is busy"),
    ],
)
def test_a_failing_grader_fails_the_attempt_by_cause(
    start: Start, template: ChatTemplate, grader: str, blame: Blame, reason: str
) -> None:
    local = LocalRewards(points(grader), LocalRewardSettings(processes=1))
    result = result_of(start, template, Asks(local, grader))
    local.close()
    assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, blame)
    assert result.reward is None
    assert reason in result.error


def test_a_grade_that_a_server_gave_in_place_of_the_service_says_so_to_the_trainer(
    start: Start, template: ChatTemplate
) -> None:
    away = RemoteRewards(RemoteRewardSettings(url=f"http://127.0.0.1:{free_port()}"))
    local = LocalRewards(points("same"), LocalRewardSettings(processes=1))
    rewards = FallbackRewards(away, local)
    result = result_of(start, template, Asks(rewards, "same"))
    rewards.close()
    assert (result.outcome, result.reward) == (Outcome.COMPLETED, 1.0)
    assert result.grade is not None
    assert result.grade.metrics["graded_locally"] == 1.0
    assert result.grade.components == {"same": 1.0}
