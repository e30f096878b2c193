"""The proof of a dataset: what solves a row is rewarded, and doing nothing is not."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

import msgspec

from launch.environments.workbench import Workbench
from rollyard.errors import RollyardError
from rollyard.messages import Grade, Prompt


class ValidationSettings(msgspec.Struct, frozen=True, kw_only=True):
    solved_at: float = 1.0
    """The least reward that a solved row must get."""
    untouched_below: float = 1.0
    """The reward that a row must not reach when nothing was done; the same for both decides by
    itself where rewards are not 0 and 1."""
    row_seconds: float = 600.0
    """Time for each of a row's two episodes."""
    at_once: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)


class RowVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one row; `problem` is empty where it is sound."""

    row: str
    problem: str = ""
    gold: Grade | None = None
    untouched: Grade | None = None
    seconds: float = 0.0


def verdicts(
    bench: Workbench, prompts: Iterator[Prompt], settings: ValidationSettings
) -> Iterator[RowVerdict]:
    """The verdict on each row, as they come. A few rows are under way at once."""
    with ThreadPoolExecutor(settings.at_once) as threads:
        running: set[Future[RowVerdict]] = set()

        def begin(most: int) -> None:
            for prompt in islice(prompts, most):
                running.add(threads.submit(verdict, bench, prompt, settings))

        begin(2 * settings.at_once)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                running.discard(each)
                yield each.result()
            begin(len(done))


def verdict(bench: Workbench, prompt: Prompt, settings: ValidationSettings) -> RowVerdict:
    """Play the row's two episodes. An error of either is the row's problem."""
    began = time.monotonic()
    grades: dict[str, Grade] = {}
    try:
        grades["untouched"] = _graded(bench, prompt, settings, solved=False)
        grades["gold"] = _graded(bench, prompt, settings, solved=True)
        problem = _problem(grades["untouched"], grades["gold"], settings)
    except RollyardError as error:
        problem = f"{'gold' if grades else 'untouched'}: {error}"
    seconds = time.monotonic() - began
    return RowVerdict(row=prompt.prompt_id, problem=problem, seconds=seconds, **grades)


def _graded(
    bench: Workbench, prompt: Prompt, settings: ValidationSettings, *, solved: bool
) -> Grade:
    with bench.episode(prompt, settings.row_seconds) as (episode, _):
        act: Callable[[], None] = episode.solve if solved else lambda: None
        act()
        return episode.grade()


def _problem(untouched: Grade, gold: Grade, settings: ValidationSettings) -> str:
    problems = []
    if gold.reward < settings.solved_at:
        problems.append(f"the solution gets {gold.reward:g}: {gold.reason or 'no reason given'}")
    if untouched.reward >= settings.untouched_below:
        reason = untouched.reason or "no reason given"
        problems.append(f"doing nothing gets {untouched.reward:g}: {reason}")
    return "; ".join(problems)
