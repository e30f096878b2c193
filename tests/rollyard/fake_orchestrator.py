"""An orchestrator in this process: every Prompt is an effective Group at once."""

import threading
from array import array
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rollyard import codec
from rollyard.api import OrchestratorAPI, RunAPI
from rollyard.errors import Conflict
from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    Batch,
    BatchReport,
    BatchRequest,
    ChatMessage,
    Claim,
    Counters,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    RunStatus,
    Trajectory,
    Turn,
    WeightReport,
    WeightSpan,
    WeightUpdate,
    WeightVersion,
)

MAX_OUTSTANDING = 2


class OrchestratorForTrainers(Peer):
    """One Run. A subclass, so that type checking holds it to what `OrchestratorAPI` calls."""

    run_id = "run"

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.fed: dict[str, Prompt] = {}
        self.feeding_threads: set[str] = set()
        self.ready: list[Prompt] = []
        self.wanted: dict[str, int] = {}
        self.delivered: dict[str, tuple[Prompt, ...]] = {}
        self.closed = False
        self.checkpoints: list[Path] = []
        """Of the weights that were published."""
        self.updates = self.served = 0
        """The weight version that Batches update, and the one that samples their tokens."""

    def take_over(self) -> RunAPI:
        api = OrchestratorAPI(token="no token is looked for", patience_seconds=1.0)
        api.peer = self
        return RunAPI(api, "run").take_over()

    def wait_for_batch(self, batch_id: str, seconds: float = 10.0) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: batch_id in self.delivered, seconds)

    def get(self, path: str, kind: Any, *, timeout_seconds: float | None = None) -> Any:
        url = urlsplit(path)
        with self.changed:
            if url.path == "/weights":
                return WeightVersion(version=self.served)
            match url.path.split("/")[3:]:
                case []:
                    return self._wait(parse_qs(url.query))
                case ["prompts"]:
                    delivered = [p for batch in self.delivered.values() for p in batch]
                    return [prompt.prompt_id for prompt in (*self.ready, *delivered)]
                case ["batches", batch_id]:
                    return codec.decode(codec.encode(self._batch(batch_id)), kind)
                case _:
                    raise AssertionError(path)

    def post(
        self, path: str, message: Any, kind: Any, *, timeout_seconds: float | None = None
    ) -> Any:
        with self.changed:
            self.changed.notify_all()
            match urlsplit(path).path.split("/")[3:]:
                case ["prompts"]:
                    return self._feed(message)
                case ["batches"]:
                    return self._request(message)
                case ["batches", batch_id, "ack"]:
                    del self.delivered[batch_id]
                    return Accepted()
                case ["trainer"]:
                    return Claim(epoch=1)
                case ["trainer", "heard"]:
                    return Accepted()
                case ["weights"]:
                    return self._publish(message)
                case ["close"]:
                    self.closed, self.wanted, self.delivered = True, {}, {}
                    return self._status()
                case _:
                    raise AssertionError(path)

    def _publish(self, update: WeightUpdate) -> WeightReport:
        """Responses under way go on under the new weights: a Batch that is not delivered yet has
        their version."""
        self.checkpoints.append(Path(update.path))
        self.served = self.updates = update.version
        return WeightReport(version=update.version, servers=("http://llm",), paused_seconds=0.0)

    def _feed(self, prompts: list[Prompt]) -> Accepted:
        if self.closed:
            raise Conflict("the run is closed")
        self.feeding_threads.add(threading.current_thread().name)
        self.ready += [prompt for prompt in prompts if prompt.prompt_id not in self.fed]
        self.fed |= {prompt.prompt_id: prompt for prompt in prompts}
        self._deliver()
        return Accepted()

    def _request(self, request: BatchRequest) -> RunStatus:
        if len(self.wanted) + len(self.delivered) >= MAX_OUTSTANDING:
            raise Conflict("too many batches are not acknowledged")
        self.wanted[request.batch_id] = request.requested_batch_size
        self._deliver()
        return self._status()

    def _deliver(self) -> None:
        for batch_id, size in list(self.wanted.items()):
            if len(self.ready) < size:
                return
            self.delivered[batch_id], self.ready = tuple(self.ready[:size]), self.ready[size:]
            del self.wanted[batch_id]

    def _wait(self, query: dict[str, list[str]]) -> RunStatus:
        seconds = float(query.get("wait_seconds", ["0"])[0])
        (batch_id,) = query.get("batch", [""])
        self.changed.wait_for(
            lambda: self._status().prompts_wanted or batch_id not in self.wanted, seconds
        )
        return self._status()

    def _status(self) -> RunStatus:
        outstanding = (*self.delivered, *self.wanted)
        size = next(iter(self.wanted.values()), 0)
        return RunStatus(
            run_id=self.run_id,
            batch_id=next(iter(outstanding), None),
            requested_batch_size=size,
            effective_groups=len(self.ready),
            open_groups=0,
            idle=True,
            prompts_wanted=min(1, size - len(self.ready)) if self.wanted else 0,
            batch_ready=bool(self.delivered),
            counters=Counters(groups_fed=len(self.fed)),
            batches=outstanding,
            batches_ready=tuple(self.delivered),
            waiting_for="the run is closed" if self.closed else "rows",
        )

    def _batch(self, batch_id: str) -> Batch:
        groups = tuple(map(self.group, self.delivered[batch_id]))
        report = BatchReport(weight_version=self.updates)
        return Batch(
            batch_id=batch_id, run_id="run", groups=groups, counters=Counters(), report=report
        )

    def group(self, prompt: Prompt) -> Group:
        return Group(group_id=prompt.prompt_id, prompt=prompt, results=(self._result(prompt),))

    def _result(self, prompt: Prompt) -> Result:
        trajectory = Trajectory(
            token_ids=array("i", [1, 2]),
            loss_mask=array("b", [0, 1]),
            logprobs=array("f", [0.0, -0.5]),
            weight_spans=(WeightSpan(version=self.served, start=1, end=2),),
            turns=(Turn(start=1, end=2, finish_reason="stop"),),
            messages=(ChatMessage(role="user", content="?"),),
        )
        lease = Lease(job_id=f"run/{prompt.prompt_id}/0", attempt=1, server_id="a", slot="a#0")
        return Result(
            lease=lease, outcome=Outcome.COMPLETED, grade=Grade(reward=1.0), trajectory=trajectory
        )
