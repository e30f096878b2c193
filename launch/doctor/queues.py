"""Checks of the queues, as their orchestrator sees them."""

import time

from launch.doctor.check import Check, check, skipped
from orchestrator.queues.connection import STATE_VERSION
from rollyard.messages import Checkup, Counters, FleetStatus, Storage

MIN_REDIS = (7, 0)
MAX_SKEW_SECONDS = 2.0
MAX_EVENTS_WAITING = 1000
NOT_TOLD = "Redis does not tell this user"


def storage_checks(storage: Storage) -> list[Check]:
    skew = abs(time.time() - storage.at)
    version = tuple(int(part) for part in storage.version.split(".")[:2] if part.isdigit())
    return [
        check("redis version", version >= MIN_REDIS, storage.version, "use Redis 7.0 or newer"),
        check(
            "state version",
            storage.state_version == STATE_VERSION,
            str(storage.state_version),
            "somebody has put other data there: start the orchestrator again, which refuses them",
        ),
        _setting("redis appendonly", storage.appendonly, "yes", "a restart would lose every run"),
        _setting(
            "redis appendfsync", storage.appendfsync, "always", "a kill loses answered writes"
        ),
        _setting("redis eviction", storage.eviction, "noeviction", "jobs would vanish"),
        _redis_memory(storage),
        check(
            "redis round trip",
            storage.round_trip_seconds < 0.05,
            f"{storage.round_trip_seconds * 1000:.1f} ms",
            "run Redis on the orchestrator's node, with a disk of its own",
        ),
        check(
            "clock",
            skew < MAX_SKEW_SECONDS,
            f"{skew:.1f} s from the clock of the queues",
            "synchronise this machine's clock; leases are safe, times shown are not",
        ),
    ]


def _setting(name: str, found: str | None, wanted: str, why: str) -> Check:
    if found is None:
        return skipped(name, NOT_TOLD)
    setting = {"redis eviction": "maxmemory-policy"}.get(name, name.removeprefix("redis "))
    return check(name, found == wanted, found, f"set {setting} {wanted}: {why}")


def _redis_memory(storage: Storage) -> Check:
    name = "redis memory"
    if storage.used_bytes is None or storage.max_bytes is None:
        return skipped(name, NOT_TOLD)
    used = f"{storage.used_bytes / 2**20:.0f} MiB used"
    good = not storage.max_bytes or storage.used_bytes < 0.8 * storage.max_bytes
    return check(name, good, used, "raise maxmemory, or close runs that are done")


def run_checks(status: FleetStatus, checkup: Checkup) -> list[Check]:
    broken = [run.run_id for run in status.runs if not is_conserved(run.counters)]
    behind = {r: n for r, n in checkup.events_waiting.items() if n > MAX_EVENTS_WAITING}
    unoffered = [f"{run.run_id}: {run.unoffered}" for run in status.runs if run.unoffered]
    dead = sum(run.counters.jobs_dead for run in status.runs if not run.closed)
    return [
        check(
            "invariant",
            not broken,
            f"jobs do not add up in {', '.join(broken)}"
            if broken
            else "every job is accounted for",
            "keep the orchestrator's log and Redis' data, and report this: it is a defect",
        ),
        check(
            "leases",
            not checkup.stray_leases,
            f"{len(checkup.stray_leases)} leases without a server",
            "wait for them to expire; if they stay, restart the orchestrator",
        ),
        check(
            "collector",
            not behind,
            f"{max(checkup.events_waiting.values(), default=0)} events wait in a run at most",
            "the orchestrator's log says what its collector is doing",
        ),
        check(
            "placement",
            not unoffered,
            "; ".join(unoffered) or "every queued job has a server that can run it",
            "start such a server, or correct the rows",
        ),
        check(
            "dead jobs",
            not dead,
            f"{dead} dead",
            "`rollyard dead` says why; requeue them once that is fixed, or close their run",
        ),
    ]


def is_conserved(c: Counters) -> bool:
    ended = c.jobs_accepted + c.jobs_dead + c.jobs_dropped
    return c.jobs_submitted == c.jobs_queued + c.jobs_leased + ended
