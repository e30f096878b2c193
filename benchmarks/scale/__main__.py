"""`python -m benchmarks.scale`: few against many Jobs queued and in flight, many Runs, a very large
one, many calls that wait, a long Result, and many kinds of Jobs.

The last line of stdout is one JSON object.
"""

import argparse
from statistics import median

from rich.progress import Progress

from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_least, at_most, say
from benchmarks.scale import in_flight, kinds, payload, queued, runs

DEEP_JOBS = 1_000_000
SHALLOW_JOBS = 10_000
MANY_IN_FLIGHT = 10_000
FEW_IN_FLIGHT = 100
FEW_ROUNDS = 10
"""Rounds with few in flight, before and after the one with many."""
TOKENS = 32_768
LARGE_RUN_JOBS = 100_000
KINDS = 1000


def goals(
    depth: queued.QueueDepths,
    few: list[in_flight.InFlight],
    many: in_flight.InFlight,
    long: payload.WireCost,
    many_runs: runs.ManyRuns,
    many_kinds: kinds.ManyKinds,
) -> list[Goal]:
    few_cpu = median(each.rollyard_cpu_microseconds for each in few)
    return [
        at_most("take_cost_ratio_1e6", depth.take_cost_ratio, 1.5),
        at_most("bytes_per_queued_job", depth.bytes_per_queued_job, 400),
        at_most("prompt_copies_per_group", depth.prompt_copies_per_group, 1.1),
        at_least("inflight_10k_succeeded", many.succeeded / many.jobs, 1),
        at_most("inflight_10k_kib", many.kib_per_job, 16),
        at_most("inflight_10k_cpu_ratio", many.rollyard_cpu_microseconds / few_cpu, 2),
        at_most("result_bytes_ratio", long.bytes / long.json_bytes, 0.35),
        at_most("result_cpu_ratio", long.milliseconds / long.json_milliseconds, 0.05),
        at_most("status_of_64_runs_ms", many_runs.status_milliseconds, 100),
        at_most("longest_redis_call_at_close_ms", many_runs.longest_call_milliseconds, 20),
        at_least("rate_with_five_waiters", many_runs.rate_with_waiters, 0.95),
        at_least("take_rate_1000_kinds", many_kinds.rate_ratio, 0.9),
        at_most("longest_redis_call_1000_kinds_ms", many_kinds.longest_call_milliseconds, 20),
    ]


def depth_of_queues(bar: Progress, scale: float) -> queued.QueueDepths:
    deep, shallow = _scaled(DEEP_JOBS, scale), _scaled(SHALLOW_JOBS, scale)
    long = 2 * queued.LONG_GROUPS * queued.GROUP_SIZE
    task = bar.add_task("jobs queued", total=deep + shallow + long)
    return queued.measure(deep, shallow, lambda jobs: bar.advance(task, jobs))


def flights(bar: Progress, scale: float) -> tuple[list[in_flight.InFlight], in_flight.InFlight]:
    """Measure few, many, and few again, so that a change of the machine's load shows."""
    task = bar.add_task("jobs in flight", total=3)

    def measure(jobs: int, rounds: int) -> in_flight.InFlight:
        measured = in_flight.measure(jobs, rounds)
        bar.advance(task)
        return measured

    before = measure(FEW_IN_FLIGHT, FEW_ROUNDS)
    many = measure(_scaled(MANY_IN_FLIGHT, scale), 1)
    return [before, measure(FEW_IN_FLIGHT, FEW_ROUNDS)], many


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="queued and in flight, times this")
    options = parser.parse_args()
    machine = this_machine()
    long = payload.measure(TOKENS)
    with progress_bar() as bar:
        few, many = flights(bar, options.scale)
        depth = depth_of_queues(bar, options.scale)
        task = bar.add_task("many runs", total=1)
        many_runs = runs.measure(_scaled(LARGE_RUN_JOBS, options.scale))
        bar.advance(task)
        kind_jobs = _scaled(LARGE_RUN_JOBS, options.scale)
        task = bar.add_task("many kinds", total=2 * kind_jobs)
        many_kinds = kinds.measure(KINDS, kind_jobs, lambda jobs: bar.advance(task, jobs))
    figures = {
        "queued": depth,
        "in_flight": [*few, many],
        "result": long,
        "runs": many_runs,
        "kinds": many_kinds,
    }
    say("scale", machine, goals(depth, few, many, long, many_runs, many_kinds), figures)


def _scaled(count: int, scale: float) -> int:
    """A multiple of every group size and number of servers here."""
    return max(2000, round(count * scale / 200) * 200)


if __name__ == "__main__":
    main()
