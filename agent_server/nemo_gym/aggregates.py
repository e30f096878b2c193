"""Statistics of the answers of `/run`, as NeMo-Gym's collector asks for at its end."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent_server.nemo_gym.messages import RunsAggregated
from agent_server.nemo_gym.rows import ROLLOUT, TASK

_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda numbers: statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
}
_MOST = 1e15
"""Numbers beyond are left out: they measure nothing, and their statistics could overflow."""


def aggregate(answers: Iterable[Mapping[str, Any]]) -> RunsAggregated:
    numbers = [(_task(each), _numbers(each)) for each in answers]
    tasks: dict[int, list[dict[str, float]]] = defaultdict(list)
    for task, each in numbers:
        tasks[task].append(each)
    overall = _described([each for _, each in numbers])
    return RunsAggregated(
        group_level_metrics=[
            {TASK: task, "num_rollouts": len(of_task), **_described(of_task)}
            for task, of_task in sorted(tasks.items())
        ],
        agent_metrics=overall,
        key_metrics={name: each for name, each in overall.items() if name.startswith("mean/")},
    )


def _task(told: Mapping[str, Any]) -> int:
    number = told.get(TASK)
    return number if isinstance(number, int) and abs(number) <= _MOST else 0


def _numbers(told: Mapping[str, Any]) -> dict[str, float]:
    response = told.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    every = {**told, **(usage if isinstance(usage, dict) else {})}
    return {
        name: float(value)
        for name, value in every.items()
        if isinstance(value, int | float) and name not in (TASK, ROLLOUT) and abs(value) <= _MOST
    }


def _described(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for each in several for name in each})
    found = {name: [each[name] for each in several if name in each] for name in names}
    return {
        f"{kind}/{name}": function(numbers)
        for kind, function in _STATISTICS.items()
        for name, numbers in found.items()
    }
