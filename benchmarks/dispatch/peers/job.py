"""The job of every peer, and the answer to a measurement."""

import argparse
import json
from collections.abc import Callable

BODY = "x" * 300
"""The argument of every job, which is the text of a prompt of ours."""


def noop(_body: str) -> float:
    """The job, which only has a reward."""
    return 1.0


def answer(measure: Callable[[int, int], float]) -> None:
    """Call `measure(jobs, redis_port)` as the command line says; print the seconds it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--redis-port", type=int, required=True)
    options = parser.parse_args()
    seconds = measure(options.jobs, options.redis_port)
    print(json.dumps({"jobs": options.jobs, "seconds": seconds}), flush=True)
