"""`python -m benchmarks.dapo`: every policy on the same draws, seed by seed, on the virtual clock.

A goal must hold at the 10th percentile over seeds, from the worse end. The last line of stdout is
one JSON object; the table is on stderr.
"""

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from statistics import median, quantiles
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.dapo.cases import (
    BATCHWISE,
    BLIND,
    CASES,
    DRIFTS,
    HISTORY_DRIFT,
    ORACLE,
    ORACLE_ALPHA1,
    PLAIN_DRIFT,
    RESTART,
    RESUME,
    Case,
    measure,
)
from benchmarks.dapo.overlap import Failing, Overlap, failing, overlap
from benchmarks.dapo.real import Compared, compare
from benchmarks.dapo.stepping import stepping
from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_least, at_most, say, within
from simulator.figures import Figures

OVERLAP_STALENESS = 2
"""The bound for which overlap is judged. A bound of 1 is not enough where training takes as long as
the rollouts: it is shown and not judged."""
SIGMAS = (1.0, 10.0)
REAL_POLICIES = ("resume", "restart")
"""Policies that also run in real processes; the first is judged."""


class SeedResults:
    """Results of all seeds, by case."""

    def __init__(self, seeds: int, real_seeds: int) -> None:
        self.seeds = range(seeds)
        self._real_seeds = range(real_seeds)
        self.real: dict[str, list[Compared]] = {name: [] for name in REAL_POLICIES}
        self._figures: dict[tuple[str, int], Any] = {}

    def tasks(self) -> Iterable[tuple[str, int, Callable[[], Any]]]:
        for seed in self.seeds:
            for case in CASES:
                yield case.name, seed, partial(measure, case, seed)
            for age in (1, OVERLAP_STALENESS):
                yield f"overlap {age}", seed, partial(overlap, age, seed)
            yield "failing", seed, partial(failing, seed)
            for sigma in SIGMAS:
                yield f"stepping {sigma:g}", seed, partial(stepping, sigma, seed)

    def run(self) -> None:
        tasks = list(self.tasks())
        with ProcessPoolExecutor() as processes, progress_bar() as bar:
            shown = bar.add_task("simulated training runs", total=len(tasks))
            running: dict[Future[Any], tuple[str, int]] = {
                processes.submit(work): (name, seed) for name, seed, work in tasks
            }
            for done in as_completed(running):
                self._figures[running[done]] = done.result()
                bar.advance(shown)
        pairs = list(product(REAL_POLICIES, self._real_seeds))
        with progress_bar() as bar:  # alone: nothing else may take its processor time
            for name, seed in bar.track(pairs, description="the same, in real processes"):
                self.real[name].append(compare(name, seed))

    def real_ratios(self, name: str) -> list[float]:
        return [each.ratio for each in self.real[name]]

    def of(self, case: Case) -> list[Figures]:
        return [self._figures[case.name, seed] for seed in self.seeds]

    def overlaps(self, max_staleness: int) -> list[Overlap]:
        return [self._figures[f"overlap {max_staleness}", seed] for seed in self.seeds]

    def failings(self) -> list[Failing]:
        return [self._figures["failing", seed] for seed in self.seeds]

    def steppings(self, sigma: float) -> list[tuple[float, float]]:
        return [self._figures[f"stepping {sigma:g}", seed] for seed in self.seeds]

    def speed_up(self, slow: Case, fast: Case) -> list[float]:
        """Speed-up of the fast case over the slow one, seed by seed."""
        pairs = zip(self.of(slow), self.of(fast), strict=True)
        return [one.seconds_per_step / other.seconds_per_step for one, other in pairs]


def low(values: Iterable[float]) -> float:
    """The 10th percentile."""
    return quantiles(values, n=10, method="inclusive")[0]


def high(values: Iterable[float]) -> float:
    """The 90th percentile."""
    return quantiles(values, n=10, method="inclusive")[-1]


def goals(measured: SeedResults) -> list[Goal]:
    resume = measured.of(RESUME)
    published = measured.speed_up(BATCHWISE, RESTART)
    gains = [measured.speed_up(PLAIN_DRIFT[drift], HISTORY_DRIFT[drift]) for drift in DRIFTS]
    blind = max(high(each.over_blind for each in measured.of(case)) for case in BLIND)
    oracle = high(each.over_oracle for each in measured.of(ORACLE))
    alpha1 = high(each.over_oracle for each in measured.of(ORACLE_ALPHA1))
    longs = [each.long_share for each in resume]
    means = [each.mean_ratio for each in resume]
    steps = {sigma: measured.steppings(sigma) for sigma in SIGMAS}
    ahead, failed = measured.overlaps(OVERLAP_STALENESS), measured.failings()
    return [
        at_least("speedup_over_batchwise", low(measured.speed_up(BATCHWISE, RESUME)), 3.3),
        within("published_speedup_restart", low(published), high(published), 2.9, 3.4),
        at_most("over_blind_bound", blind, 1.05),
        at_most("over_oracle_bound", oracle, 1.5),
        at_most("over_oracle_bound_alpha1", alpha1, 1.7),
        at_least("history_gain_under_drift", min(low(gain) for gain in gains), 1.4),
        at_most("cancelled_share", high(each.cancelled for each in resume), 0.05),
        within("long_share", low(longs), high(longs), 0.09, 0.11),
        within("mean_length_ratio", low(means), high(means), 0.98, 1.02),
        at_least("stepping_gain_sigma1", low(gain for gain, _ in steps[1.0]), 1.2),
        at_least("stepping_gain_sigma10", low(gain for gain, _ in steps[10.0]), 2.25),
        at_most("stepping_over_ideal", max(high(o for _, o in s) for s in steps.values()), 1.05),
        at_most("overlap_ratio", high(each.ratio for each in ahead), 1.05),
        at_most("overlap_oldest", max(each.oldest for each in ahead), OVERLAP_STALENESS),
        at_most("failure_overhead", high(each.overhead for each in failed), 0.03),
        at_most("failure_groups_dropped", max(each.groups_dropped for each in failed), 0),
        at_most("real_over_simulated", median(measured.real_ratios(REAL_POLICIES[0])), 1.1),
    ]


def spread(values: list[float]) -> dict[str, float]:
    return {
        "p10": round(low(values), 4),
        "median": round(median(values), 4),
        "p90": round(high(values), 4),
    }


def shown(measured: SeedResults) -> dict[str, Any]:
    """All measurements over seeds, by case."""
    cases: dict[str, Any] = {}
    for case in CASES:
        of = [msgspec.to_builtins(each) for each in measured.of(case)]
        numbers = [name for name, value in of[0].items() if not isinstance(value, str)]
        cases[case.name] = {name: spread([each[name] for each in of]) for name in numbers}
        if case.slots == BATCHWISE.slots:
            cases[case.name]["speed_up"] = spread(measured.speed_up(BATCHWISE, case))
    failed = measured.failings()
    return {
        "seeds": len(measured.seeds),
        "cases": cases,
        "overlap": {
            f"age <= {age}": spread([each.ratio for each in measured.overlaps(age)])
            for age in (1, OVERLAP_STALENESS)
        },
        "failing": {
            "overhead": spread([each.overhead for each in failed]),
            "lost": spread([each.lost for each in failed]),
        },
        "stepping_gain": {
            f"sigma {sigma:g}": spread([gain for gain, _ in measured.steppings(sigma)])
            for sigma in SIGMAS
        },
        "real_over_simulated": {
            name: [round(ratio, 4) for ratio in measured.real_ratios(name)]
            for name in REAL_POLICIES
        },
    }


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "min/step": lambda each: f"{each['seconds_per_step']['median'] / 60:.1f}",
    "speed-up (p10)": lambda each: f"{each['speed_up']['p10']:.2f}" if "speed_up" in each else "",
    "x blind": lambda each: f"{each['over_blind']['median']:.2f}",
    "x oracle": lambda each: f"{each['over_oracle']['median']:.2f}",
    "useful": lambda each: f"{each['useful']['median']:.0%}",
    "filtered": lambda each: f"{each['filtered']['median']:.0%}",
    "cancelled": lambda each: f"{each['cancelled']['median']:.0%}",
    "idle": lambda each: f"{each['idle']['median']:.0%}",
    "long": lambda each: f"{each['long_share']['median']:.1%}",
    "mean": lambda each: f"{each['mean_ratio']['median']:.2f}",
    "long, reported": lambda each: (
        f"{each['reported_long_share']['median']:.1%} of "
        f"{each['reported_started_long_share']['median']:.1%}"
    ),
    "mean, reported": lambda each: f"{each['reported_mean_ratio']['median']:.2f}",
    "older": lambda each: f"{each['older']['median']:.0%}",
    "oldest": lambda each: f"{each['oldest']['p90']:.0f}",
}


def table(cases: dict[str, Any]) -> Table:
    """The table of all cases: medians over seeds, except for the speed-up."""
    made = Table(title="24 steps, 8 of them warm-up; medians over seeds", title_justify="left")
    made.add_column("policy")
    for column in COLUMNS:
        made.add_column(column, justify="right")
    for name, case in cases.items():
        made.add_row(name, *(cell(case) for cell in COLUMNS.values()))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dapo", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--real-seeds", type=int, default=3, help="each takes half a minute")
    options = parser.parse_args()
    machine, measured = this_machine(), SeedResults(options.seeds, options.real_seeds)
    measured.run()
    results = shown(measured)
    Console(stderr=True, width=200).print(table(results["cases"]))
    say("dapo", machine, goals(measured), results)


if __name__ == "__main__":
    main()
