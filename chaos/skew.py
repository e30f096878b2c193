"""A clock that is wrong by the seconds in a file, which is read at each look at the clock.

`python -m chaos.skew FILE MODULE ARGUMENTS...` runs the module with this clock.
"""

import runpy
import sys
import time
from pathlib import Path


def follow(told: Path) -> None:
    """Make the clock of this process, and of its forks, wrong by the seconds in the file."""
    right_time = time.time

    def wrong_time() -> float:
        return right_time() + float(told.read_text())

    time.time = wrong_time
    time.time_ns = lambda: int(wrong_time() * 1e9)


def tell(told: Path, seconds: float) -> None:
    """Make the clock wrong by so many seconds, in one step."""
    fresh = told.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.replace(told)


def main() -> None:
    told, module, *arguments = sys.argv[1:]
    follow(Path(told))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
