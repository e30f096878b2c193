"""`python -m benchmarks.fairness`: Runs of different weights on the same Slots, a small Run beside
a very large one, and many Runs beside one.

The last line of stdout is one JSON object.
"""

import argparse

from benchmarks.fairness import many_runs, shares, small_run
from benchmarks.fairness.beside_others import BesideOthers
from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_most, figures, say

SLOTS = 64
SHARED_SECONDS = 30.0
LARGE_RUN_JOBS = 100_000
SMALL_RUN_ROUNDS = 11
MANY_RUNS_JOBS = 640
MANY_RUNS_ROUNDS = 11
TOGETHER = 16
"""Results in one request of a busy agent server, all of different Runs."""


def goals(shared: shares.Shared, small: BesideOthers, many: BesideOthers) -> list[Goal]:
    return [
        at_most("share_off_its_weight", shared.worst, 0.05),
        at_most("small_run_beside_a_large_one", small.ratio, 1.2),
        at_most("dispatch_of_64_runs_vs_one", many.ratio, 1.2),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fairness", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="jobs and seconds, times this")
    scale = parser.parse_args().scale
    machine = this_machine()
    with progress_bar() as bar:
        task = bar.add_task("what many runs cost", total=4)
        jobs = max(160, round(MANY_RUNS_JOBS * scale / 160) * 160)
        many = many_runs.measure(jobs, MANY_RUNS_ROUNDS, together=1)
        bar.advance(task)
        together = many_runs.measure(jobs, MANY_RUNS_ROUNDS, together=TOGETHER)
        bar.update(task, advance=1, description="three runs share")
        shared = shares.measure(SLOTS, max(3.0, SHARED_SECONDS * scale))
        bar.update(task, advance=1, description="a small run beside a large one")
        large = max(1600, round(LARGE_RUN_JOBS * scale / 8) * 8)
        rounds = max(3, round(SMALL_RUN_ROUNDS * scale))
        small = small_run.measure(SLOTS, large, rounds)
        bar.advance(task)
    measured = {
        "shares": shared,
        "small_run_seconds": {
            "alone": figures(small.alone, 3),
            "beside": figures(small.beside, 3),
        },
        "dispatch_microseconds": {
            f"{name}, {results} in a request": figures(microseconds)
            for results, each in ((1, many), (TOGETHER, together))
            for name, microseconds in (
                ("one run", each.alone),
                ("64 runs", each.beside),
            )
        },
    }
    say("fairness", machine, goals(shared, small, many), measured)


if __name__ == "__main__":
    main()
