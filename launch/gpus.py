"""The GPUs of this machine, as the driver names them to processes.

- `CUDA_VISIBLE_DEVICES` counts where it is set: whoever started us lends these and no others.
- Else nvidia-smi is asked, and where there is none, the driver's device files are counted.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rollyard.errors import LaunchError

DEVICES = "CUDA_VISIBLE_DEVICES"
ASK_SECONDS = 30.0
"""Time for nvidia-smi, which wakes a driver that sleeps."""

_ASK = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_FILE = re.compile(r"nvidia([0-9]+)")


def visible_gpus(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """The GPUs that our environment lends us; None if it says nothing."""
    if DEVICES not in environment:
        return None
    named = [word.strip() for word in environment[DEVICES].split(",")]
    # As CUDA does: what comes behind a name that is none is not there.
    end = next((i for i, word in enumerate(named) if not word or word.startswith("-")), len(named))
    return tuple(named[:end])


def gpus_of_machine(
    environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")
) -> tuple[str, ...]:
    """Names for `CUDA_VISIBLE_DEVICES` of all GPUs that we may use; none if there are none."""
    visible = visible_gpus(environment)
    if visible is not None:
        return visible
    told = _told_by_driver()
    return told if told is not None else _device_files(devices)


def shared_gpus(gpus: tuple[str, ...], tensor_parallel: int) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each LLM server, `tensor_parallel` each. Raises `LaunchError` unless they share
    all evenly."""
    if len(gpus) % tensor_parallel:
        sizes = [size for size in range(1, len(gpus) + 1) if len(gpus) % size == 0]
        listed = " or ".join(filter(None, (", ".join(map(str, sizes[:-1])), str(sizes[-1]))))
        raise LaunchError(
            f"LLM servers of {tensor_parallel} GPUs each cannot share {len(gpus)} evenly",
            fix=f"use --tensor-parallel {listed}, or name those to use with --gpus",
        )
    starts = range(0, len(gpus), tensor_parallel)
    return tuple(gpus[start : start + tensor_parallel] for start in starts)


def _told_by_driver() -> tuple[str, ...] | None:
    """What nvidia-smi lists; None if it is not there or does not work."""
    try:
        done = subprocess.run(_ASK, capture_output=True, text=True, timeout=ASK_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    indices = done.stdout.split()
    return tuple(indices) if not done.returncode and all(map(str.isdigit, indices)) else None


def _device_files(devices: Path) -> tuple[str, ...]:
    found = (_FILE.fullmatch(path.name) for path in devices.glob("nvidia*"))
    numbers = sorted(int(each[1]) for each in found if each is not None)
    return tuple(map(str, numbers))
