"""The reward service as agent servers ask it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_server.rewards.remote import RemoteRewards, RemoteRewardSettings
from reward_service.app import create_app
from reward_service.service import RewardService
from rollyard.errors import GraderFailed, Unavailable
from rollyard.tokens import parse_tokens
from tests.reward_service.running import TOKENS, MakeService, task
from tests.serving_threads import served
from tests.waiting import until


@pytest.fixture(scope="module")
def url(service: RewardService) -> Iterator[str]:
    with served(create_app(service, parse_tokens(TOKENS, "the test"))) as url:
        yield url


@pytest.fixture(scope="module")
def rewards(url: str) -> Iterator[RemoteRewards]:
    token = "worker-0123456789abcdef"
    asked = RemoteRewards(RemoteRewardSettings(url=url, token=token))
    yield asked
    asked.close()


NONE_REFUSED = "rollyard_reward_tasks_refused_total 0.0"


def test_the_whole_grade_arrives(rewards: RemoteRewards) -> None:
    grade = rewards.score(task("same"))
    assert (grade.reward, grade.components, grade.reason) == (1.0, {"same": 1.0}, "as expected")
    assert "process" in grade.metrics


@pytest.mark.parametrize("grader", ["raises", "leaves", "verse"])
def test_a_failing_grader_is_the_rows_fault(rewards: RemoteRewards, grader: str) -> None:
    with pytest.raises(GraderFailed, match=f"answered 422: .*{grader}"):
        rewards.score(task(grader))


def test_without_its_token_the_service_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable, match="answered 401"):
        RemoteRewards(RemoteRewardSettings(url=url)).score(task("same"))


def test_a_full_service_is_asked_until_it_has_room(make_service: MakeService) -> None:
    service = make_service(most_tasks=1)
    service._count.enter(1)
    with served(create_app(service)) as url, ThreadPoolExecutor() as pool:
        rewards = RemoteRewards(RemoteRewardSettings(url=url))
        graded = pool.submit(rewards.score, task("same"))
        until("it is refused", lambda: NONE_REFUSED not in service.metrics.text())
        service._count.leave()
        assert graded.result().reward == 1.0
