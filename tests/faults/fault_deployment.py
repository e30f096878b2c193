"""A deployment of real processes that a test may hurt, and the oracle that judges it afterwards.

- Redis, orchestrators, agent servers and trainer are those of a chaos run (see `chaos/`); a Job
  takes a while and does nothing else.
- What a test breaks it mends before it asks for the verdict.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import redis

from agent_server.status import Status
from chaos import history, work
from chaos.checker import Verdict, check
from chaos.cluster import Cluster
from chaos.history import History
from chaos.observer import PREFIX, Observer
from chaos.proxy import LossyProxy
from chaos.settings import ChaosSettings
from chaos.trainer import ENOUGH
from rollyard import Client
from rollyard.http import Peer
from rollyard.messages import (
    Batch,
    Counters,
    Criterion,
    JobList,
    JobRecord,
    JobState,
)
from tests.waiting import until

ROWS = 100_000
"""More than any test trains on."""


class FaultDeployment:
    def __init__(self, settings: ChaosSettings, *, durable: bool = False) -> None:
        self.settings = settings
        self._durable = durable
        """Redis answers a write once it is on disk. Elsewhere it need not, which is quicker."""
        self.cluster = Cluster(settings)
        self.ports = self.cluster.ports
        self.observer = Observer(settings, self.cluster)
        self.redis = redis.Redis.from_url(self.cluster.redis_url, decode_responses=True)
        self.gate = settings.directory / "gate"
        """What the first attempts of Jobs wait for whose row names it."""
        self.proxy: LossyProxy | None = None
        """Between everybody and the orchestrators, if it may lose something or has a choice."""
        if settings.orchestrators > 1 or settings.lost_reply_share:
            targets = self.ports.orchestrators
            share, seed = settings.lost_reply_share, settings.seed
            self.proxy = LossyProxy(self.ports.proxy, targets, share, seed)
        else:
            self.cluster.door_url = self.cluster.orchestrator_urls[0]

    def start(self, *orchestrator_options: str) -> None:
        """Everything but the trainer."""
        self.start_services(*orchestrator_options)
        for index in range(self.settings.agent_servers):
            self.cluster.start_agent(index)
        self.wait_for_servers(self.settings.agent_servers)

    def start_services(self, *orchestrator_options: str) -> None:
        self.cluster.start_redis()
        if not self._durable:
            self.redis.config_set("appendfsync", "no")
        for index in range(self.settings.orchestrators):
            self.cluster.start_orchestrator(index, *orchestrator_options)
        self.observer.start()

    def wait_for_servers(self, count: int) -> None:
        until("agent servers register", lambda: self.redis.hlen(PREFIX + "servers") == count)

    def wait_for_running(self, jobs: int) -> None:
        """Until so many Jobs have reached the agent servers."""
        until(f"{jobs} jobs run", lambda: sum(each.busy for each in self.workloads()) == jobs)

    def wait_for_standstill(self, run_id: str = work.RUN_ID) -> int:
        """Until nothing of the Run goes on: what had passed its last turn boundary is reported, and
        all else is parked. Returns how many Jobs stand still."""

        def stands_still() -> bool:
            workloads = self.workloads()
            still = sum(each.parked + each.ahead for each in workloads)
            return (
                self.counters(run_id).jobs_leased == still == sum(len(w.leases) for w in workloads)
            )

        until(f"run {run_id} stands still", stands_still)
        return sum(each.parked for each in self.workloads())

    def workloads(self) -> list[Status]:
        """Of the agent servers, as each tells it."""
        peers = [Peer(url, name="agent server") for url in self.servers().values()]
        return [peer.get("/status", Status) for peer in peers]

    def servers(self) -> dict[str, str]:
        """Agent server -> where the orchestrator finds it."""
        return {server.server_id: server.url for server in self.observer.status().servers}

    def train(self) -> None:
        """Start the trainer; it goes on until the verdict is asked for."""
        self.cluster.start_llm_node()
        self.cluster.start_trainer(ROWS, self.settings.seed, self.settings.trainer_crash_share)

    def concluded(self) -> int:
        """Events of the trainer's Run that the collectors are done with."""
        return int(self._of_run(work.RUN_ID, "config", "concluded"))

    def accepted(self, run_id: str = work.RUN_ID) -> int:
        return int(self._of_run(run_id, "counts", "accepted"))

    def wait_for_progress(
        self, jobs: int, seconds: float = 60.0, run_id: str = work.RUN_ID
    ) -> None:
        """Until so many more Jobs are accepted."""
        goal = self.accepted(run_id) + jobs
        until(f"{jobs} more jobs are accepted", lambda: self.accepted(run_id) >= goal, seconds)

    def counters(self, run_id: str) -> Counters:
        (counters,) = [r.counters for r in self.observer.status().runs if r.run_id == run_id]
        return counters

    def jobs(self, run_id: str, state: JobState) -> tuple[JobRecord, ...]:
        peer = Peer(self.cluster.door_url, name="orchestrator")
        return peer.get(f"/jobs?run={run_id}&state={state}", JobList).jobs

    def rollout(
        self, instances: Iterable[dict[str, Any]], run_id: str, *, failing_groups: int = 3
    ) -> "Future[Batch]":
        """Each row once, as a Group of one Job; all of them are the Batch."""
        rows = [{"data_source": work.DATA_SOURCE, **instance} for instance in instances]
        future: Future[Batch] = Future()

        def run() -> None:
            try:
                client = Client(self.cluster.door_url, patience_seconds=120)
                training = client.run(
                    rows,
                    run_id=run_id,
                    group_size=1,
                    criterion=Criterion.COMPLETE,
                    failing_groups=failing_groups,
                )
                future.set_result(training.rollout(len(rows), timeout_seconds=300))
            except BaseException as error:  # the test's own thread raises it
                future.set_exception(error)

        threading.Thread(target=run, name=run_id, daemon=True).start()
        return future

    def verdict(self, seconds: float = 60.0) -> Verdict:
        """Let the trainer finish, wait until every Slot is free, and judge what was recorded."""
        settings, driver = self.settings, History(self.settings.directory / "driver.jsonl")
        (settings.directory / ENOUGH).touch()
        until("the trainer ends", lambda: self.cluster.trainer_exit() is not None, seconds)
        assert self.cluster.trainer_exit() == 0, f"see {settings.directory}/logs/trainer.log"
        slots = settings.agent_servers * settings.slots
        driver.write("ended", slots=slots, faults_left=0, **self.observer.rest(slots))
        self.observer.close()
        return check(settings.directory)

    def observed(self, event: str) -> list[dict[str, Any]]:
        path = self.settings.directory / "observer.jsonl"
        return [each for each in history.read(path) if each["event"] == event]

    def workers_lost(self) -> list[str]:
        """Services of ours whose worker ended by itself, so that another took its place."""
        logs = {log.stem: log.read_text() for log in self.settings.directory.glob("logs/*.log")}
        return [
            name
            for name, said in logs.items()
            if said.count("Booting worker") > said.count("Starting gunicorn")
        ]

    def close(self) -> None:
        self.observer.close()
        self.cluster.close()
        if self.proxy is not None:
            self.proxy.close()
        self.redis.close()

    def _of_run(self, run_id: str, name: str, field: str) -> Any:
        return self.redis.hget(f"{PREFIX}run:{run_id}:{name}", field) or 0


def assert_once_each(batch: Batch, numbers: Iterable[int], counters: Counters) -> None:
    """Every row is in the Batch once, and nothing was accepted beside it."""
    seen = sorted(group.prompt.instance["number"] for group in batch.groups)
    assert seen == sorted(numbers)
    assert counters.jobs_accepted == counters.jobs_submitted == len(seen)
