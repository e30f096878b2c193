"""Reports of benchmarks: goals, figures and the machine, as one line of JSON on stdout."""

import sys
from statistics import median
from typing import Any

import msgspec

from benchmarks.machine import Machine


class Goal(msgspec.Struct, frozen=True):
    """A figure that is judged. A missed goal is reported, with `ok` false."""

    name: str
    value: float
    goal: str
    """Condition on the value, such as ">= 2"."""
    ok: bool


def at_least(name: str, value: float, least: float) -> Goal:
    return Goal(name, round(value, 4), f">= {least:g}", value >= least)


def at_most(name: str, value: float, most: float) -> Goal:
    return Goal(name, round(value, 4), f"<= {most:g}", value <= most)


def within(name: str, lowest: float, highest: float, least: float, most: float) -> Goal:
    """The goal of a figure that scatters between two values, of which the one nearer to a limit is
    shown."""
    value = lowest if lowest - least < most - highest else highest
    return Goal(name, round(value, 4), f"{least:g}-{most:g}", least <= lowest <= highest <= most)


def figures(samples: list[float], digits: int = 1) -> dict[str, Any]:
    """The figure to report: the median, and all samples."""
    return {
        "median": round(median(samples), digits),
        "all": [round(sample, digits) for sample in samples],
    }


def say(benchmark: str, machine: Machine, goals: list[Goal], measured: dict[str, Any]) -> None:
    """Print the table on stderr and the JSON as the last line of stdout."""
    for goal in goals:
        verdict = "ok" if goal.ok else "MISSED"
        print(f"{goal.name:34} {goal.value:12.4g}   {goal.goal:10} {verdict}", file=sys.stderr)
    line = {"benchmark": benchmark, "goals": goals, "measured": measured, "machine": machine}
    print(msgspec.json.encode(line).decode(), flush=True)
