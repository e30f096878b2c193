"""The observer of a run: conservation of Jobs, time until they are requeued, memory.

It owns a thread and a history, changes nothing, and sees nothing while Redis or the orchestrator is
away.
"""

import contextlib
import queue
import threading
import time
from typing import Any

import msgspec
import psutil
import redis
import requests

from chaos import work
from chaos.cluster import Cluster
from chaos.history import History
from chaos.settings import ChaosSettings
from orchestrator.ids import server_of
from rollyard import codec
from rollyard.messages import FleetStatus

WATCH_SECONDS = 0.1
STATUS_SECONDS = 1.0
REST_SECONDS = 15.0
"""Time until every Slot must be free again, once all is over."""
PREFIX = "rollyard:"


class Observer:
    def __init__(self, settings: ChaosSettings, cluster: Cluster) -> None:
        self._cluster = cluster
        self._redis = redis.Redis.from_url(
            cluster.redis_url, socket_timeout=1, decode_responses=True
        )
        self._history = History(settings.directory / "observer.jsonl")
        self._kills: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        self._orphans: dict[tuple[str, str], float] = {}
        """Job and holder of each Lease of a killed server -> when it was killed."""
        self.accepted = 0
        self.busy: frozenset[str] = frozenset()
        """Agent servers that hold Leases."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(10)

    def killed(self, server_id: str) -> None:
        self._kills.put((server_id, time.time()))

    def status(self) -> FleetStatus:
        """The status from any orchestrator that answers. Raises `requests.RequestException` while
        all are away."""
        first, *others = self._cluster.orchestrator_urls
        for url in others:
            with contextlib.suppress(requests.RequestException):
                return _status(url)
        return _status(first)

    def rest(self, slots: int) -> dict[str, Any]:
        """Counts of what is left once so many Slots are free again, at the latest after
        `REST_SECONDS`."""
        deadline = time.monotonic() + REST_SECONDS
        while (left := self.leftovers())["free_slots"] != slots and time.monotonic() < deadline:
            time.sleep(WATCH_SECONDS)
        return left

    def leftovers(self) -> dict[str, Any]:
        """Counts of what a closed Run must not leave in Redis, and of the free Slots."""
        run = f"{PREFIX}run:{work.RUN_ID}:"
        return {
            "leases": self._redis.zcard(PREFIX + "leases"),
            "free_slots": len(free_slots(self._redis)),
            "holders": self._redis.hlen(run + "holders"),
            "tasks": int(self._redis.hget(run + "queued", "all") or 0),
            "results": self._redis.hlen(run + "results"),
            "prompts": self._redis.hlen(run + "prompts"),
            "events": self._redis.llen(run + "events"),
        }

    def _run(self) -> None:
        next_status = 0.0
        while not self._closed.wait(WATCH_SECONDS):
            with contextlib.suppress(redis.RedisError):
                self._watch_leases()
            if time.monotonic() >= next_status:
                next_status = time.monotonic() + STATUS_SECONDS
                with contextlib.suppress(requests.RequestException):
                    self._watch_counters()
                with contextlib.suppress(redis.RedisError):
                    self._watch_memory()

    def _watch_leases(self) -> None:
        run = f"{PREFIX}run:{work.RUN_ID}:"
        stored = self._redis.hgetall(run + "holders")
        holders = {str(job): str(holder) for job, holder in stored.items()}
        self.busy = frozenset(server_of(holder) for holder in holders.values())
        self.accepted = int(self._redis.hget(run + "counts", "accepted") or 0)
        while not self._kills.empty():
            server_id, killed_at = self._kills.get()
            for job, holder in holders.items():
                if holder.startswith(f"{server_id}#"):
                    self._orphans[job, holder] = killed_at
        for (job, holder), killed_at in list(self._orphans.items()):
            if holders.get(job) != holder:
                del self._orphans[job, holder]
                self._history.write("requeued", job=job, seconds=time.time() - killed_at)

    def _watch_counters(self) -> None:
        for run in self.status().runs:
            self._history.write(
                "counters",
                counters=msgspec.to_builtins(run.counters),
                waiting_for=run.waiting_for,
            )

    def _watch_memory(self) -> None:
        processes = {}
        for name, pid in self._cluster.pids().items():
            with contextlib.suppress(psutil.Error):  # it is being killed
                process = psutil.Process(pid)
                family = [process, *process.children()]
                processes[name] = [pid, sum(each.memory_info().rss for each in family)]
        used = self._redis.info("memory")["used_memory"]
        self._history.write("memory", redis_bytes=used, processes=processes)


def free_slots(store: "redis.Redis") -> list[str]:
    """The Slots on the server-availability queue, which is a list for each class of servers."""
    classes = map(str, store.zrange(PREFIX + "classes", 0, -1))
    return [str(slot) for name in classes for slot in store.lrange(f"{PREFIX}free:{name}", 0, -1)]


def _status(url: str) -> FleetStatus:
    answer = requests.get(url + "/status", headers={"Accept": codec.MSGPACK}, timeout=5)
    answer.raise_for_status()
    return codec.decode(answer.content, FleetStatus)
