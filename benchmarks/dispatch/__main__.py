"""`python -m benchmarks.dispatch`: ours and every peer, one after the other, round by round.

Each measurement has the machine to itself, in fresh processes; a figure is the median of its
rounds. The last line of stdout is one JSON object.
"""

import argparse
import math
from collections.abc import Callable
from statistics import median

from benchmarks.dispatch.ours import Drained, no_op_jobs
from benchmarks.dispatch.peer import jobs_per_second
from benchmarks.dispatch.steady import Steady, busy_slots
from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_least, at_most, figures, say

PEERS = {
    "ray_tasks": 4000,
    "bare_client": 10_000,
    "rq_jobs": 800,
    "celery_prefork": 800,
    "celery_threads": 800,
}
"""Peer -> jobs in one measurement: a few seconds each."""
QUEUES = ("rq_jobs", "celery_prefork", "celery_threads")
OUR_JOBS = 6400
SLOTS = 16
MANY_SLOTS = 16 * SLOTS
STEADY_SECONDS = 8.0


class Rounds:
    """Measurements of all rounds."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self.drained: list[Drained] = []
        self.few: list[Steady] = []
        self.many: list[Steady] = []
        self.peers: dict[str, list[float]] = {peer: [] for peer in PEERS}

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        """One round: ours beside the peers, then few Slots beside many."""
        peers = [
            (peer, lambda peer=peer, jobs=jobs: self._peer(peer, jobs))
            for peer, jobs in PEERS.items()
        ]
        return [
            ("rollyard", self._ours),
            *peers,
            (f"{SLOTS} slots", lambda: self.few.append(self._steady(SLOTS))),
            (f"{MANY_SLOTS} slots", lambda: self.many.append(self._steady(MANY_SLOTS))),
        ]

    def _ours(self) -> None:
        self.drained.append(no_op_jobs(self._scaled(OUR_JOBS)))

    def _peer(self, peer: str, jobs: int) -> None:
        self.peers[peer].append(jobs_per_second(peer, self._scaled(jobs)))

    def _steady(self, slots: int) -> Steady:
        return busy_slots(slots, max(2.0, STEADY_SECONDS * self._scale))

    def _scaled(self, jobs: int) -> int:
        return max(80, math.ceil(jobs * self._scale / 8) * 8)


def goals(rounds: Rounds) -> list[Goal]:
    ours = median(each.jobs_per_second for each in rounds.drained)
    peers = {peer: median(rates) for peer, rates in rounds.peers.items()}
    many = median(each.jobs_per_second for each in rounds.many)
    few = median(each.jobs_per_second for each in rounds.few)
    best_queue = max(peers[peer] for peer in QUEUES)
    return [
        at_least("dispatch_vs_ray", ours / peers["ray_tasks"], 2),
        at_least("dispatch_vs_best_of_rq_celery", ours / best_queue, 5),
        at_least("dispatch_vs_bare_client", ours / peers["bare_client"], 0.5),
        at_most("slot_to_start_p50_ms", median(m.percentile(0.5) for m in rounds.many), 1),
        at_most("slot_to_start_p99_ms", median(m.percentile(0.99) for m in rounds.many), 10),
        at_least("slots_scaling_16x", many / (16 * few), 0.95),
    ]


def measured(rounds: Rounds) -> dict[str, object]:
    cpu = {
        part: round(median(each.cpu_microseconds[part] for each in rounds.drained))
        for part in rounds.drained[0].cpu_microseconds
    }
    return {
        "jobs_per_second": {
            "rollyard": figures([each.jobs_per_second for each in rounds.drained]),
            **{peer: figures(rates) for peer, rates in rounds.peers.items()},
        },
        "rollyard_cpu_microseconds_per_job": cpu,
        "busy_slots_jobs_per_second": {
            str(each[0].slots): figures([m.jobs_per_second for m in each])
            for each in (rounds.few, rounds.many)
        },
        "slot_to_start_ms": {
            f"p{round(share * 100)}": figures([m.percentile(share) for m in rounds.many], 2)
            for share in (0.5, 0.9, 0.99)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dispatch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="jobs and seconds, times this")
    options = parser.parse_args()
    machine, rounds = this_machine(), Rounds(options.scale)
    with progress_bar() as bar:
        task = bar.add_task("", total=options.rounds * len(rounds.steps()))
        for _ in range(options.rounds):
            for name, step in rounds.steps():
                bar.update(task, description=name)
                step()
                bar.advance(task)
    say("dispatch", machine, goals(rounds), measured(rounds))


if __name__ == "__main__":
    main()
