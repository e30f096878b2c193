"""The three queues in Redis. Owns nothing but a connection: all state is Redis's.

Every move is one script of `orchestrator/scripts` (keys are documented in `_common.lua`), so that
a kill -9 anywhere leaves it done or not done. Works with one Redis or Valkey from 7.0 on, not with
a cluster. Safe to share between threads.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.retry import Retry

from orchestrator.events import AnyEvent, job_id
from orchestrator.queues.contract import Conclusion, Run
from orchestrator.queues.operations import (
    DEFAULT_QUARANTINE,
    MOST_REASON_CHARACTERS,
    QuarantineSettings,
)
from orchestrator.queues.redis_operations import RedisOperations, constants
from orchestrator.sampler import (
    AnyDecision,
    Deliver,
    Drop,
    Hold,
    Open,
    Recycle,
    SamplerState,
)
from rollyard import codec
from rollyard.errors import Conflict, NotFound, QueueUnavailable, StaleAttempt
from rollyard.messages import (
    AgentServer,
    Assignment,
    Counters,
    Group,
    Heartbeat,
    HeartbeatReply,
    Job,
    Lease,
    LLMNode,
    Outcome,
    Prompt,
    Receipt,
    Reported,
    Result,
    RunSettings,
)

SCRIPTS = Path(__file__).parent.parent / "scripts"
LONGEST_WAIT_SECONDS = 20.0


class RedisQueues(RedisOperations):
    def __init__(
        self,
        url: str,
        *,
        password: str = "",
        lease_seconds: float = 30.0,
        prefix: str = "rollyard:",
        quarantine: QuarantineSettings = DEFAULT_QUARANTINE,
    ) -> None:
        self._redis = redis.Redis.from_url(
            url,
            password=password or None,
            socket_timeout=LONGEST_WAIT_SECONDS + 10,
            socket_connect_timeout=5,
            max_connections=1024,
            # Who calls decides: a move whose answer was lost may have been made.
            retry=Retry(NoBackoff(), retries=0),
        )
        self._prefix = prefix
        self._lease_seconds = lease_seconds
        self._settings: dict[str, RunSettings] = {}
        """Of the Runs seen so far: they never change."""
        shared = ("_common.lua", "_history.lua", "_servers.lua")
        common = constants(quarantine) + "".join((SCRIPTS / name).read_text() for name in shared)
        self._scripts: dict[str, Script] = {
            path.stem: self._redis.register_script(common + path.read_text())
            for path in SCRIPTS.glob("[a-z]*.lua")
        }

    # Runs and their trainer

    def create_run(self, settings: RunSettings) -> None:
        stored = self._run_script(
            "create_run",
            settings.run_id,
            codec.encode(settings),
            codec.encode(SamplerState()),
            settings.max_infra_failures,
        )
        if codec.decode(stored, RunSettings) != settings:
            raise Conflict(
                f"run {settings.run_id!r} exists with other settings",
                fix="choose another run_id, or the settings that it was created with",
            )

    def run_ids(self) -> list[str]:
        return sorted(run.decode() for run in self._do(lambda r: r.smembers(self._key("runs"))))

    def run(self, run_id: str) -> Run:
        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.get(self._of_run(run_id, "settings"))
            pipe.get(self._of_run(run_id, "sampler"))
            pipe.hgetall(self._of_run(run_id, "counts"))
            pipe.llen(self._of_run(run_id, "tasks"))
            pipe.hlen(self._of_run(run_id, "holders"))
            pipe.llen(self._of_run(run_id, "events"))
            pipe.hget(self._of_run(run_id, "config"), "concluded")
            return pipe.execute()

        settings, state, counts, queued, leased, events, concluded = self._do(read)
        if settings is None:
            raise NotFound(f"there is no run {run_id!r}", fix="create it with Client.run(...)")
        sampler_state = codec.decode(state, SamplerState)
        return Run(
            codec.decode(settings, RunSettings),
            sampler_state,
            _counters(counts, sampler_state, queued, leased),
            int(concluded or 0),
            events,
        )

    def _settings_of(self, run_id: str) -> RunSettings:
        settings = self._settings.get(run_id)
        if settings is None:
            settings = self._settings[run_id] = self.run(run_id).settings
        return settings

    def submit(self, run_id: str, prompt: Prompt) -> bool:
        settings = self._settings_of(run_id)
        jobs = [job_id(run_id, prompt.prompt_id, m) for m in range(settings.group_size)]
        return bool(
            self._run_script("submit", run_id, prompt.prompt_id, codec.encode(prompt), *jobs)
        )

    def tell(self, run_id: str, event: AnyEvent) -> None:
        def write(r: "redis.Redis") -> None:
            pipe = r.pipeline(transaction=True)
            pipe.rpush(self._of_run(run_id, "events"), codec.encode(event))
            pipe.rpush(self._key("events"), run_id)
            pipe.execute()

        self._do(write)

    def batch(self, run_id: str, batch_id: str) -> tuple[Group, ...]:
        stored = self._do(lambda r: r.hget(self._of_run(run_id, "batches"), batch_id))
        size = self._settings_of(run_id).group_size
        group_ids = [] if stored is None else codec.decode(stored, list[str])
        groups = [self._group(run_id, group_id, size) for group_id in group_ids]
        whole = tuple(group for group in groups if group is not None)
        if not whole or len(whole) < len(groups):
            raise NotFound(f"run {run_id!r} has no batch {batch_id!r} to fetch")
        return whole

    def _group(self, run_id: str, group_id: str, size: int) -> Group | None:
        """None if it was dropped."""
        jobs = [job_id(run_id, group_id, member) for member in range(size)]

        def read(r: "redis.Redis") -> list[Any]:
            pipe = r.pipeline(transaction=True)
            pipe.hget(self._of_run(run_id, "prompts"), group_id)
            pipe.hmget(self._of_run(run_id, "results"), jobs)
            return pipe.execute()

        prompt, results = self._do(read)
        if prompt is None:
            return None
        return Group(
            group_id=group_id,
            prompt=codec.decode(prompt, Prompt),
            results=tuple(codec.decode(result, Result) for result in results),
        )

    def wait_for_news(self, run_id: str, seconds: float) -> None:
        self._wait(self._of_run(run_id, "news"), seconds)

    # Servers

    def register(self, server: AgentServer) -> None:
        self._run_script("register", server.server_id, codec.encode(server), server.slots)

    def leave(self, server_id: str) -> None:
        self._run_script("leave", server_id)

    def servers(self) -> list[AgentServer]:
        stored = self._do(lambda r: r.hvals(self._key("servers")))
        servers = [codec.decode(server, AgentServer) for server in stored]
        return sorted(servers, key=lambda server: server.server_id)

    def busy_slots(self) -> dict[str, int]:
        busy = {server.server_id: 0 for server in self.servers()}
        for slot, state in self._do(lambda r: r.hgetall(self._key("slots"))).items():
            server_id = slot.decode().rsplit("#", 1)[0]
            if state != b"free" and server_id in busy:
                busy[server_id] += 1
        return busy

    def free_slots(self) -> int:
        return int(self._do(lambda r: r.llen(self._key("free"))))

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        triples = [
            field
            for lease in heartbeat.leases
            for field in (lease.job_id, lease.slot, lease.attempt)
        ]
        state, *stop = self._run_script(
            "heartbeat", heartbeat.server_id, self._lease_seconds, *triples
        )
        return HeartbeatReply(
            known=state != 0,
            drained=state == 2,
            stop=tuple(heartbeat.leases[int(index)] for index in stop),
        )

    def register_llm_node(self, node: LLMNode) -> None:
        self._do(lambda r: r.hset(self._key("llm_nodes"), node.node_id, codec.encode(node)))

    def llm_nodes(self) -> list[LLMNode]:
        stored = self._do(lambda r: r.hvals(self._key("llm_nodes")))
        return sorted((codec.decode(n, LLMNode) for n in stored), key=lambda node: node.node_id)

    # Dispatch

    def lease(self) -> Assignment | None:
        paired = self._run_script("lease", self._lease_seconds)
        return None if paired is None else self._assignment(paired)

    def _assignment(self, paired: list[Any]) -> Assignment:
        lease = _lease(*paired[:3])
        run_id, group_id, member = lease.job_id.split("/")
        settings = self._settings_of(run_id)
        job = Job(
            job_id=lease.job_id,
            run_id=run_id,
            group_id=group_id,
            member=int(member),
            prompt=codec.decode(paired[3], Prompt),
            sampling=settings.sampling,
            limits=settings.limits,
        )
        return Assignment(job=job, lease=lease)

    def give_back(self, lease: Lease, reason: str = "") -> None:
        why = reason[:MOST_REASON_CHARACTERS]
        self._run_script("give_back", lease.job_id, lease.slot, lease.attempt, why)

    def expire(self) -> float:
        return float(self._run_script("expire", self._lease_seconds))

    def renew(self) -> None:
        self._run_script("renew", self._lease_seconds)

    def wait_for_work(self, seconds: float) -> None:
        self._wait(self._key("work"), seconds)

    # Results

    def report(self, result: Result, *, more: bool = False) -> Reported:
        lease = result.lease
        completed = result.outcome is Outcome.COMPLETED
        receipt, *paired = self._run_script(
            "report",
            lease.job_id,
            lease.slot,
            lease.attempt,
            result.outcome,
            codec.encode(result) if completed else b"",
            repr(result.reward),
            result.error[:MOST_REASON_CHARACTERS],
            self._lease_seconds if more else "",
        )
        if receipt == b"stale":
            raise StaleAttempt(f"attempt {lease.attempt} of job {lease.job_id} is not leased")
        return Reported(
            receipt=Receipt(receipt.decode()),
            assignment=self._assignment(paired) if paired else None,
        )

    def wait_for_events(self, seconds: float) -> str | None:
        popped = self._wait(self._key("events"), seconds)
        return None if popped is None else popped.decode()

    def next_events(self, run_id: str, most: int = 256) -> list[AnyEvent]:
        stored = self._do(lambda r: r.lrange(self._of_run(run_id, "events"), 0, most - 1))
        # mypy cannot see that a union is a type here; msgspec takes it as one.
        return [codec.decode(event, AnyEvent) for event in stored]  # type: ignore[arg-type]

    def conclude(self, run_id: str, conclusion: Conclusion) -> list[Lease]:
        size = self._settings_of(run_id).group_size
        ended = self._run_script(
            "conclude",
            run_id,
            conclusion.after,
            conclusion.events,
            codec.encode(conclusion.state),
            codec.encode([part for d in conclusion.decisions for part in _parts(run_id, d, size)]),
        )
        if ended is None:
            raise Conflict(f"somebody else concluded events of run {run_id!r}")
        return [_lease(*ended[i : i + 3]) for i in range(0, len(ended), 3)]

    # Redis itself

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _of_run(self, run_id: str, name: str) -> str:
        return f"{self._prefix}run:{run_id}:{name}"

    def _run_script(self, name: str, *arguments: Any) -> Any:
        script, args = self._scripts[name], [self._prefix, *arguments]
        return self._do(lambda r: script(args=args, client=r))

    def _wait(self, key: str, seconds: float) -> Any:
        """Pop from `key`; waits at most `seconds`."""
        timeout = min(seconds, LONGEST_WAIT_SECONDS)
        if timeout <= 0:
            return self._do(lambda r: r.lpop(key))
        popped = self._do(lambda r: r.blpop([key], timeout=timeout))
        return None if popped is None else popped[1]

    def _do(self, work: Callable[["redis.Redis"], Any]) -> Any:
        try:
            return work(self._redis)
        except redis.RedisError as error:
            raise QueueUnavailable(
                f"Redis does not do its work: {error}",
                fix="is it running and not out of memory or disk? its log says why not",
            ) from error


def _parts(run_id: str, decision: AnyDecision, group_size: int) -> list[list[Any]]:
    """The decision as `conclude.lua` reads it."""
    match decision:
        case Open():
            return [["open"]]
        case Hold():
            return [["hold"]]
        case Recycle(job_ids=jobs):
            return [["recycle", *jobs]]
        case Drop(group_ids=groups):
            members = range(group_size)
            return [["drop", *(job_id(run_id, group, m) for m in members)] for group in groups]
        case Deliver(batch_id=batch, group_ids=groups):
            return [["deliver", batch, list(groups)]]


def _lease(job: bytes, slot: bytes, attempt: Any) -> Lease:
    slot_name = slot.decode()
    return Lease(
        job_id=job.decode(),
        attempt=int(attempt),
        server_id=slot_name.rsplit("#", 1)[0],
        slot=slot_name,
    )


def _counters(
    counts: dict[bytes, bytes], state: SamplerState, queued: int, leased: int
) -> Counters:
    def number(name: str) -> int:
        return int(counts.get(name.encode(), 0))

    return Counters(
        groups_kept=state.groups_kept,
        groups_filtered=state.groups_filtered,
        groups_dead=state.groups_dead,
        groups_cancelled=state.groups_cancelled,
        jobs_submitted=number("submitted"),
        jobs_queued=queued,
        jobs_leased=leased,
        jobs_accepted=number("accepted"),
        jobs_dead=number("dead"),
        jobs_dropped=number("dropped"),
        attempts_stopped=number("attempts_stopped"),
        jobs_recycled=number("recycled"),
        attempts_failed=number("attempts_failed"),
        rewards_sum=float(counts.get(b"rewards_sum", 0.0)),
    )
