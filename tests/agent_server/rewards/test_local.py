"""Grading on this machine: whatever a grader does ends at its deadline, and no failure is a 0."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.rewards import local
from agent_server.rewards.grader_process import GraderProcess
from agent_server.rewards.local import LocalRewards, LocalRewardSettings, NoGrader
from agent_server.rewards.protocol import ScoreTask
from rollyard.errors import GraderFailed, InvalidMessage, Unavailable
from rollyard.messages import Grade
from tests.agent_server.rewards.graders import points
from tests.processes import hosted_processes, lives, zygotes
from tests.waiting import until

NAMES = (
    *("same", "raises", "gives_text", "gives_nan", "lacks_a_judge"),
    *("leaves", "crashes", "hoards", "sleeps", "hangs"),
)
PATIENT = 60.0
LIMITS = ProcessLimits(data_bytes=1 << 28)


def settings(**changes: Any) -> LocalRewardSettings:
    usual: dict[str, Any] = {"task_seconds": PATIENT, "processes": 2, "limits": LIMITS}
    return LocalRewardSettings(**usual | changes)


Make = Callable[..., LocalRewards]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[LocalRewards] = []

    def make(*names: str, **changes: Any) -> LocalRewards:
        made.append(LocalRewards(points(*names), settings(**changes)))
        return made[-1]

    yield make
    for rewards in made:
        rewards.close()


@pytest.fixture(scope="module")
def rewards() -> Iterator[LocalRewards]:
    made = LocalRewards(points(*NAMES), settings())
    yield made
    made.close()


def task(grader: str, answer: str = "42", truth: str = "42") -> ScoreTask:
    return ScoreTask(data_source=grader, solution_str=answer, ground_truth=truth)


def process_of(rewards: LocalRewards) -> float:
    return rewards.score(task("same")).metrics["process"]


def processes() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def test_a_grade_comes_with_its_components_and_its_reason(rewards: LocalRewards) -> None:
    right, wrong = rewards.score(task("same")), rewards.score(task("same", "41"))
    assert (right.reward, right.components, right.reason) == (1.0, {"same": 1.0}, "as expected")
    assert (wrong.reward, wrong.components, wrong.reason) == (0.0, {"same": 0.0}, "expected 42")


@pytest.mark.parametrize(
    ("grader", "reason"),
    [
        (
            "raises",
            r"the grader of 'raises' failed: ValueError in raises \(graders.py:[0-9]+\): no",
        ),
        ("gives_text", "the grader of 'gives_text' must give a Grade, got '1.0'"),
        ("gives_nan", "a grade needs a finite reward"),
        ("hoards", "MemoryError in hoards"),
        ("leaves", "of 'leaves' exited with status 7; it wrote last: the grader gives up"),
        ("crashes", "of 'crashes' was killed by SIGSEGV"),
    ],
)
def test_a_grader_that_goes_wrong_is_no_reward(
    rewards: LocalRewards, grader: str, reason: str
) -> None:
    with pytest.raises(GraderFailed, match=reason):
        rewards.score(task(grader))
    assert rewards.score(task("same")).reward == 1.0


def test_a_grader_without_what_it_needs_can_be_asked_again(rewards: LocalRewards) -> None:
    with pytest.raises(Unavailable, match="the judge is busy"):
        rewards.score(task("lacks_a_judge"))


def test_a_task_without_a_grader_is_told_which_there_are(make: Make) -> None:
    with pytest.raises(NoGrader, match=r"data_source 'verse'; it must be one of: raises, same"):
        make("same", "raises").score(task("verse"))


def test_text_that_is_no_unicode_is_no_reward(rewards: LocalRewards) -> None:
    with pytest.raises(GraderFailed, match="surrogates not allowed"):
        rewards.score(task("same", "\ud800"))


def test_a_process_is_used_again(make: Make) -> None:
    rewards = make("same")
    assert process_of(rewards) == process_of(rewards)


def test_a_grader_is_warmed_up_once_for_all_processes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MAX_TASKS", 1)
    rewards = make("warm")
    assert [rewards.score(task("warm")).reward for _ in range(3)] == [1.0, 1.0, 1.0]


def test_a_process_that_had_many_tasks_is_replaced(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MAX_TASKS", 2)
    rewards = make("same")
    first, second, third = (process_of(rewards) for _ in range(3))
    assert first == second != third


def test_graders_whose_processes_were_killed_while_idle_lose_no_task(make: Make) -> None:
    rewards = make("same")
    assert process_of(rewards)
    for process in hosted_processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert process_of(rewards)


def test_a_grader_that_is_killed_at_work_can_be_asked_again(make: Make, tmp_path: Path) -> None:
    rewards, begun = make("hangs"), tmp_path / "begun"
    with ThreadPoolExecutor() as pool:
        grade = pool.submit(rewards.score, task("hangs", str(begun)))
        until("the grader hangs", begun.exists)
        daemon = next(process for process in processes() if process.name() == "sleep")
        grader = daemon.parent()
        assert grader is not None
        grader.kill()
        with pytest.raises(Unavailable, match="was killed by SIGKILL"):
            grade.result(PATIENT)


def test_a_grader_that_hangs_is_killed_with_all_that_it_started(make: Make, tmp_path: Path) -> None:
    rewards, begun = make("hangs", task_seconds=1.5), tmp_path / "begun"
    with pytest.raises(GraderFailed, match=r"'hangs' did not come back within [0-9.]+ s"):
        rewards.score(task("hangs", str(begun)))
    assert begun.exists()
    until("its daemon ends", lambda: "sleep" not in {process.name() for process in processes()})


def test_a_task_waits_for_a_process_at_most_to_its_deadline(make: Make) -> None:
    rewards = make("same", task_seconds=0.05, processes=1)
    with rewards._places, pytest.raises(Unavailable, match="no process to grade in was free"):
        rewards.score(task("same"))


def test_a_task_that_had_to_wait_has_all_of_its_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def score(_: GraderProcess, task: ScoreTask, seconds: float) -> Grade:
        given.append(seconds)
        return Grade(reward=1.0)

    monkeypatch.setattr(GraderProcess, "score", score)
    make("same").score(task("same"))
    assert given == [PATIENT]


def test_graders_that_cannot_be_imported_are_unavailable(make: Make) -> None:
    with pytest.raises(Unavailable, match="cannot load the graders"):
        make("no_such_grader").score(task("no_such_grader"))


def test_nothing_is_left_once_it_is_closed(make: Make) -> None:
    before = {process.pid for process in zygotes()}
    rewards = make("same")
    process_of(rewards)
    (own,) = (process for process in zygotes() if process.pid not in before)
    family = [own, *own.children(recursive=True)]
    rewards.close()
    until("all processes end", lambda: not any(map(lives, family)))
    with pytest.raises(Unavailable, match="shutting down"):
        rewards.score(task("same"))


@pytest.mark.parametrize("change", [{"task_seconds": 0.0}, {"processes": 0}])
def test_settings_that_grade_nothing_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="must be positive"):
        settings(**change)


def test_many_threads_share_the_processes(make: Make) -> None:
    rewards = make("same")
    together = threading.Barrier(8)

    def score(number: int) -> float:
        together.wait(PATIENT)
        return rewards.score(task("same", str(number), "3")).reward

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(score, range(8))) == [0, 0, 0, 1, 0, 0, 0, 0]
