"""Grading by RQ workers: every failure has its reason, and none is a score."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reward_service.service import RewardService
from rollyard.errors import GraderFailed, InvalidMessage, Unavailable
from tests.reward_service.processes import deepest_process, processes
from tests.reward_service.running import MakeService, RewardRedis, score, task
from tests.waiting import until

PICKLE = b"\x80"


def test_a_score_comes_with_its_components_and_its_reason(service: RewardService) -> None:
    right, wrong = score(service, "same"), score(service, "same", "41")
    assert (right.score, right.components, right.reason) == (1.0, {"same": 1.0}, "as expected")
    assert (wrong.score, wrong.components, wrong.reason) == (0.0, {"same": 0.0}, "expected 42")


@pytest.mark.parametrize(
    ("grader", "reason"),
    [
        ("raises", "the grader of 'raises' failed: ValueError in raises"),
        ("gives_text", "must give a Grade, got '1.0'"),
        ("leaves", "the process of the grader of 'leaves' exited with status 7"),
        ("crashes", "the process of the grader of 'crashes' was killed by SIGSEGV"),
        ("hoards", "MemoryError in hoards"),
        ("verse", "no grader for the data_source 'verse'; it must be one of: crashes, "),
    ],
)
def test_a_grader_that_goes_wrong_is_refused_with_the_reason(
    service: RewardService, grader: str, reason: str
) -> None:
    with pytest.raises(GraderFailed) as refused:
        score(service, grader)
    assert reason in str(refused.value)


def test_a_grader_without_what_it_needs_can_be_asked_again(service: RewardService) -> None:
    with pytest.raises(Unavailable, match="the judge is busy"):
        score(service, "lacks_a_judge")


def test_each_task_of_a_batch_is_graded_or_fails_alone(service: RewardService) -> None:
    names = ("same", "raises", "verse", "lacks_a_judge", "same")
    batch = service.compute_score([task(name) for name in names])
    assert isinstance(batch, list)
    assert [each.score for each in batch] == [1.0, None, None, None, 1.0]
    codes = [each.failure.code for each in batch if each.failure is not None]
    assert codes == ["GraderFailed", "GraderFailed", "Unavailable"]


def test_a_grader_is_warmed_up_once_for_all_tasks(service: RewardService) -> None:
    assert [score(service, "warm").score for _ in range(2)] == [1.0, 1.0]


def test_an_empty_batch_has_no_scores(service: RewardService) -> None:
    assert service.compute_score([]) == []


def test_nothing_is_counted_once_it_is_graded(service: RewardService) -> None:
    service.compute_score([task("same"), task("raises")])
    assert service.status().tasks == 0


def test_more_tasks_than_may_wait_are_told_to_come_later(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service(most_tasks=2)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(score, service, "second_time", str(tmp_path / "begun"))
        until("it is at work", (tmp_path / "begun").exists)
        with pytest.raises(Unavailable, match="1 tasks wait already, and the reward service take"):
            service.compute_score([task("same"), task("same")])
        deepest_process().kill()
        assert running.result().score == 1.0
    assert service.status().tasks == 0


def test_a_batch_that_will_never_fit_is_refused(make_service: MakeService) -> None:
    with pytest.raises(InvalidMessage, match="a batch has 3 tasks, and the service takes 2"):
        make_service(most_tasks=2).compute_score([task("same")] * 3)


def test_a_grader_that_hangs_is_killed_with_all_that_it_started(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service(task_seconds=1, scaling={"most_workers": 1})
    with pytest.raises(GraderFailed, match="'hangs' did not come back within 1 s"):
        score(service, "hangs", str(tmp_path / "begun"))
    assert (tmp_path / "begun").exists()
    assert "sleep" not in {process.name() for process in processes()}
    assert score(service, "same").score == 1.0
    assert service.status().workers == 1


def test_a_task_that_no_worker_came_to_is_unavailable(
    make_service: MakeService, tmp_path: Path
) -> None:
    service = make_service(answer_seconds=1, scaling={"most_workers": 1})
    with ThreadPoolExecutor() as pool:
        pool.submit(score, service, "second_time", str(tmp_path / "begun"))
        until("it is at work", (tmp_path / "begun").exists)
        with pytest.raises(Unavailable, match="was not graded in time"):
            score(service, "same")


def test_workers_come_with_the_work_and_leave_without(make_service: MakeService) -> None:
    service = make_service(scaling={"most_workers": 3, "idle_seconds": 1})
    assert service.status().workers == 0
    service.compute_score([task("sleeps", "0.1")] * 4)
    assert service.status().workers == 3
    until("all have left", lambda: service.status().workers == 0)
    assert score(service, "same").score == 1.0


def test_nothing_is_pickled_on_its_way(
    make_service: MakeService, reward_redis: RewardRedis
) -> None:
    make_service().compute_score([task("same"), task("leaves")])
    client = reward_redis.client()
    jobs: list[Any] = [key for key in client.scan_iter("rq:job:*") if client.type(key) == b"hash"]
    stored: list[Any] = [value for job in jobs for value in client.hvals(job)]
    assert stored
    assert not [value for value in stored if value.startswith(PICKLE)]


def test_the_end_of_the_service_is_the_end_of_its_workers(
    make_service: MakeService, tmp_path: Path
) -> None:
    before = set(processes())
    service = make_service(answer_seconds=1)
    with ThreadPoolExecutor() as pool:
        pool.submit(score, service, "second_time", str(tmp_path / "begun"))
        until("it is at work", (tmp_path / "begun").exists)
        service.close()
    until("all processes end", lambda: set(processes()) <= before)
