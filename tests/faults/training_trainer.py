"""A trainer in a process of its own: it gets one Batch and trains on it until it is killed.

The first of its rows makes the Batch; the Jobs of all others wait for a gate that nobody opens, and
are parked then.
"""

import itertools
import sys
import threading

from chaos import work
from rollyard import Client, Criterion

LOOK_AHEAD_JOBS = 64
"""More than the agent servers of a test take: all their Slots are the Run's."""


def main(url: str, run_id: str, gate: str) -> None:
    rows = (
        {"data_source": work.DATA_SOURCE, "number": number} | ({"gate": gate} if number else {})
        for number in itertools.count()
    )
    run = Client(url).run(
        rows,
        run_id=run_id,
        group_size=1,
        criterion=Criterion.COMPLETE,
        look_ahead_jobs=LOOK_AHEAD_JOBS,
    )
    run.rollout(1)
    print("trains", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
