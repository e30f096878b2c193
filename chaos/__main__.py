"""`python -m chaos`: one chaos run and its verdict; the last line of stdout is one JSON object."""

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from chaos.checker import Verdict, check
from chaos.cluster import Cluster
from chaos.driver import Driver
from chaos.observer import Observer
from chaos.proxy import LossyProxy
from chaos.settings import ChaosSettings
from rollyard.errors import RollyardError


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument(
        "--directory", type=Path, help="kept; else a new one, removed if all is well"
    )
    parser.add_argument("--deadline-seconds", type=float, default=600.0)
    parser.add_argument("--again", default="make chaos", help="the command that replays the run")
    flags = parser.parse_args()
    directory = flags.directory or Path(tempfile.mkdtemp(prefix="rollyard-chaos-"))
    settings = ChaosSettings(
        directory=directory,
        seed=flags.seed,
        jobs=flags.jobs,
        deadline_seconds=flags.deadline_seconds,
    )
    print(f"seed {flags.seed}; again with: {flags.again} SEED={flags.seed}", file=sys.stderr)
    began = time.monotonic()
    try:
        replies_lost = run(settings)
        verdict = check(directory)
    except RollyardError as error:
        print(f"chaos: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    seconds = time.monotonic() - began
    report(settings, verdict, {"replies_lost": replies_lost, "seconds": round(seconds, 1)})
    if verdict.ok and flags.directory is None:
        shutil.rmtree(directory)
    raise SystemExit(0 if verdict.ok else 1)


def run(settings: ChaosSettings) -> int:
    """Carry out the run, and return the number of lost replies."""
    settings.directory.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(settings)
    ports = cluster.ports
    observer = Observer(settings, cluster)
    proxy = LossyProxy(ports.proxy, ports.orchestrators, settings.lost_reply_share, settings.seed)
    try:
        Driver(settings, cluster, observer).run(lambda done: show_progress(done, settings.jobs))
    finally:
        print(file=sys.stderr)
        observer.close()
        cluster.close()
        proxy.close()
    return proxy.lost


def show_progress(done: int, jobs: int) -> None:
    bar = "#" * (40 * done // jobs)
    print(f"\r[{bar:<40}] {done}/{jobs} jobs accepted", end="", file=sys.stderr, flush=True)


def report(settings: ChaosSettings, verdict: Verdict, more: dict[str, float]) -> None:
    for problem in verdict.problems[:20]:
        print(problem, file=sys.stderr)
    if verdict.problems:
        print(f"the histories are in {settings.directory}", file=sys.stderr)
    print(
        json.dumps(
            {**msgspec.to_builtins(verdict), "seed": settings.seed, **more, "ok": verdict.ok}
        )
    )


if __name__ == "__main__":
    main()
