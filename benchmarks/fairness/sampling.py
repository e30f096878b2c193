"""Runs that always have Jobs queued: each samples one Batch that is never complete."""

import contextlib
import threading
from collections.abc import Iterator, Sequence

from rollyard.errors import Conflict
from rollyard.training_run import TrainingRun

NEVER_COMPLETE = 1_000_000


@contextlib.contextmanager
def sampling(runs: Sequence[TrainingRun]) -> Iterator[None]:
    """Let the Runs sample until the block ends, and finish them."""
    threads = [threading.Thread(target=_sample, args=(run,), daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for run in runs:
            run.finish()
        for thread in threads:
            thread.join()


def _sample(run: TrainingRun) -> None:
    with contextlib.suppress(Conflict):  # it is finished
        run.rollout(NEVER_COMPLETE)
