"""An orchestrator of several Runs, whose Groups are of random tokens.

As in the real one, a Batch updates a weight version that is known when it is requested, stays as it
is until it is acknowledged, and every call may be repeated.
"""

import random
import threading
from array import array
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rollyard.http import Peer
from rollyard.messages import (
    Accepted,
    Batch,
    BatchReport,
    BatchRequest,
    ChatMessage,
    Counters,
    Grade,
    Group,
    Lease,
    Outcome,
    Prompt,
    Result,
    RunSettings,
    RunStatus,
    Sequence,
    Trajectory,
    Turn,
    WeightSpan,
    WeightVersion,
)
from tests.rollyard.fake_orchestrator import OrchestratorForTrainers
from tests.trainers.contract import VOCABULARY

FIRST_VERSION = 3
"""Weight version that is served before the training."""


@dataclass
class Kinds:
    """What of the Batches sampled from now on is out of the ordinary."""

    empty: bool = False
    """The second member of each Group has sampled nothing."""
    truncated: bool = False
    """The last member of each Group was ended by a limit."""
    split: bool = False
    """The first member of each Group has two sequences."""
    stale: bool = False
    """Tokens are of older weights than the Run allows."""


class Orchestrator(Peer):
    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.runs: dict[str, SampledRun] = {}
        self.kinds = Kinds()
        self.versions = [FIRST_VERSION]
        """Those that were published, the last of which is served."""

    def get(self, path: str, kind: Any, *, timeout_seconds: float | None = None) -> Any:
        if path == "/weights":
            return WeightVersion(version=self.served)
        return self._run(path).get(path, kind)

    def post(
        self, path: str, message: Any, kind: Any, *, timeout_seconds: float | None = None
    ) -> Any:
        with self.lock:
            if path == "/runs":
                return self._create(message)
            answer = self._run(path).post(path, message, kind)
            if urlsplit(path).path.endswith("/weights") and message.version not in self.versions:
                self.versions.append(message.version)
                for run in self.runs.values():
                    run.served = message.version
            return answer

    @property
    def served(self) -> int:
        return self.versions[-1]

    def _create(self, settings: RunSettings) -> RunStatus:
        if settings.run_id not in self.runs:
            self.runs[settings.run_id] = SampledRun(self, settings)
        return self.runs[settings.run_id].status()

    def _run(self, path: str) -> "SampledRun":
        return self.runs[urlsplit(path).path.split("/")[2]]


class SampledRun(OrchestratorForTrainers):
    def __init__(self, orchestrator: Orchestrator, settings: RunSettings) -> None:
        super().__init__()
        self.changed = orchestrator.lock
        self.run_id = settings.run_id
        self.settings = settings
        self.kinds = orchestrator.kinds
        self.served = orchestrator.served
        self.updated: dict[str, int] = {}
        """Batch -> the weight version that it updates."""
        self.sampled: dict[str, Batch] = {}
        """All Batches that were ever complete."""
        self.fetched: list[str] = []
        self.acknowledged: list[str] = []

    def status(self) -> RunStatus:
        return self._status()

    def post(
        self, path: str, message: Any, kind: Any, *, timeout_seconds: float | None = None
    ) -> Any:
        match urlsplit(path).path.split("/")[3:]:
            case ["batches", batch_id, "ack"]:
                with self.changed:
                    if self.delivered.pop(batch_id, None) is not None:
                        self.acknowledged.append(batch_id)
                return Accepted()
        return super().post(path, message, kind)

    def _request(self, request: BatchRequest) -> RunStatus:
        if request.batch_id in self.updated:
            return self._status()
        outstanding = len(self.wanted) + len(self.delivered)
        self.updated[request.batch_id] = self.served + outstanding
        return super()._request(request)

    def _deliver(self) -> None:
        super()._deliver()
        for batch_id, prompts in self.delivered.items():
            if batch_id not in self.sampled:
                self.sampled[batch_id] = self._sampled(batch_id, prompts)

    def _sampled(self, batch_id: str, prompts: tuple[Prompt, ...]) -> Batch:
        version = self.updated[batch_id]
        groups = tuple(sampled_group(prompt, self, version) for prompt in prompts)
        return Batch(
            batch_id=batch_id,
            run_id=self.run_id,
            groups=groups,
            counters=Counters(),
            report=BatchReport(weight_version=version),
        )

    def _batch(self, batch_id: str) -> Batch:
        self.fetched.append(batch_id)
        return self.sampled[batch_id]


def sampled_group(prompt: Prompt, run: SampledRun, updates: int) -> Group:
    row = prompt.instance["row"]
    allowed = run.settings.max_staleness
    versions = range(min(updates - allowed, run.served), run.served + 1)
    if run.kinds.stale:
        versions = range(updates - allowed - 1, updates - allowed)
    results = tuple(
        _member(f"{run.run_id}/{prompt.prompt_id}/{member}", row, member, run.kinds, versions)
        for member in range(run.settings.group_size)
    )
    return Group(group_id=prompt.prompt_id, prompt=prompt, results=results)


def _member(job_id: str, row: int, member: int, kinds: Kinds, versions: range) -> Result:
    seeded = random.Random(1000 * row + member)
    reward = row + round(seeded.random(), 3)
    sequences = [_sequence(row, seeded, versions, turns=seeded.randint(1, 3))]
    if kinds.split and member == 0:
        sequences.append(_sequence(row, seeded, versions, turns=1))
    if kinds.empty and member == 1:
        sequences = [_sequence(row, seeded, versions, turns=0)]
    last = sequences.pop()
    return Result(
        lease=Lease(job_id=job_id, attempt=1, server_id="a", slot="a#0"),
        outcome=Outcome.COMPLETED,
        grade=Grade(reward=reward),
        trajectory=Trajectory(
            token_ids=last.token_ids,
            loss_mask=last.loss_mask,
            logprobs=last.logprobs,
            weight_spans=last.weight_spans,
            turns=last.turns,
            messages=(ChatMessage(role="user", content="?"),),
            truncated=kinds.truncated and member > 1,
            earlier=tuple(sequences),
        ),
    )


def _sequence(row: int, seeded: random.Random, versions: range, *, turns: int) -> Sequence:
    """Turns of one to six tokens, each under one weight version and followed by an observation.
    All members have the prompt of the row."""
    prompt, weights = random.Random(row), random.Random(seeded.random())
    token_ids = [prompt.randrange(VOCABULARY) for _ in range(5)]
    mask = [0] * len(token_ids)
    made: list[Turn] = []
    for turn in range(turns):
        sampled = seeded.randint(3, 6)
        made.append(Turn(start=len(mask), end=len(mask) + sampled, finish_reason="stop"))
        mask += [1] * sampled + [0] * (2 + turn)
    token_ids += [seeded.randrange(VOCABULARY) for _ in mask[len(token_ids) :]]
    return Sequence(
        token_ids=array("i", token_ids),
        loss_mask=array("b", mask),
        logprobs=array("f", [each * -5.0 * seeded.random() for each in mask]),
        weight_spans=tuple(
            WeightSpan(version=weights.choice(versions), start=turn.start, end=turn.end)
            for turn in made
        ),
        turns=tuple(made),
    )
