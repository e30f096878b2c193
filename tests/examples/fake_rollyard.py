"""A Client that runs everything in this process: the real policy, the real tool protocol,
real weights read back from the trainer's checkpoints, and no service at all.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

import torch
from dapo import taken_logprobs
from sampler import sample
from transformers import AutoModelForCausalLM, AutoTokenizer

from rollyard.client import Client, Settings
from rollyard.errors import PromptsExhausted
from rollyard.messages import (
    Batch,
    ChatMessage,
    Counters,
    Criterion,
    Grade,
    Group,
    Lease,
    LogprobArray,
    Occupancy,
    OccupancyPoint,
    Outcome,
    Prompt,
    Result,
    RunSettings,
    RunStatus,
    TokenArray,
    Trajectory,
    Turn,
    WeightReport,
    WeightSpan,
)
from rollyard.rows import Row
from rollyard.training_run import TrainingRun

SERVER = "http://127.0.0.1:8101"


class FakeLLM:
    """The policy as an LLM server would serve it."""

    def __init__(self, policy_dir: Path, seed: int = 0) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(policy_dir)
        self.generator = torch.Generator().manual_seed(seed)
        self.version = 0
        self.load(policy_dir)

    def load(self, path: Path) -> None:
        self.policy = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def respond(self, prompts: list[list[int]]) -> list[list[int]]:
        return sample(self.policy, prompts, self.generator)

    def logprob_of_a_call(self) -> float:
        """Of the first token of a call of the tool, in nats."""
        question = "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n"
        tokens = self.tokenizer.encode(question, add_special_tokens=False)
        return self.logprobs([*tokens, self.tokenizer.convert_tokens_to_ids("<tool_call>")])[-1]

    @torch.no_grad()
    def logprobs(self, token_ids: list[int]) -> list[float]:
        values: list[float] = taken_logprobs(self.policy, torch.tensor([token_ids]))[0].tolist()
        return values


class KeepsOldHead(FakeLLM):
    """An LLM server that reloads all but the output head, as happens with tied embeddings."""

    def load(self, path: Path) -> None:
        old = getattr(self, "policy", None)
        super().load(path)
        if old is not None:
            self.policy.lm_head.weight = old.lm_head.weight


class FakeClient(Client):
    """A subclass, so that type checking holds it to the client's own signatures."""

    def __init__(self, llm: FakeLLM) -> None:
        self.llm = llm
        self.runs: dict[str, FakeRun] = {}

    def run(
        self,
        dataloader: Iterable[Row | Iterable[Row]],
        *,
        never_offered_seconds: float | None = None,
        **settings: Unpack[Settings],
    ) -> "FakeRun":
        rows = (dict(row) for row in dataloader if isinstance(row, Mapping))
        run = FakeRun(self.llm, rows, RunSettings(**settings))
        self.runs[run.run_id] = run
        return run

    def close(self) -> None:
        """There is no socket to free."""

    def weight_version(self) -> int:
        return self.llm.version

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        self.llm.load(Path(path))
        self.llm.version = version
        return WeightReport(version=version, servers=(SERVER,), paused_seconds=0.0)

    def occupancy(self) -> Occupancy:
        return Occupancy(
            slots={"agent-1": 8}, points=(OccupancyPoint(at=1.0, busy={"agent-1": 8}),)
        )


class FakeRun(TrainingRun):
    def __init__(self, llm: FakeLLM, rows: Iterator[dict[str, Any]], settings: RunSettings) -> None:
        self.llm = llm
        self.rows = rows
        self.settings = settings
        self.run_id = settings.run_id
        self.group_size = settings.group_size
        self.criterion = settings.criterion
        self.counters = Counters()
        self.acknowledged: list[str] = []
        self.updates: list[tuple[str, int]] = []
        self.requested: list[str] = []
        self.closed = False
        self.kept: list[Group] = []
        self.delivered = 0

    def request(self, requested_batch_size: int) -> str:
        self.requested.append(f"batch-{len(self.requested) + 1}")
        return self.requested[-1]

    def rollout(
        self,
        requested_batch_size: int,
        *,
        on_progress: Callable[[RunStatus], None] | None = None,
        timeout_seconds: float = 60.0,
    ) -> Batch:
        while len(self.kept) < requested_batch_size:
            wanted = requested_batch_size - len(self.kept)
            prompts = list(islice(self.rows, wanted))
            if not prompts:
                raise PromptsExhausted("the dataloader ended before the batch was met")
            self._collect(self._groups(prompts))
            if on_progress is not None:
                on_progress(self._stands(requested_batch_size))
        groups, self.kept = self.kept[:requested_batch_size], self.kept[requested_batch_size:]
        self.delivered += 1
        return Batch(
            batch_id=f"batch-{self.delivered}",
            run_id=self.run_id,
            groups=tuple(groups),
            counters=self.counters,
        )

    def update_weights(self, path: Path | str, version: int) -> WeightReport:
        self.llm.load(Path(path))
        self.llm.version = version
        self.updates.append((str(path), version))
        return WeightReport(version=version, servers=(SERVER,), paused_seconds=0.0)

    def weight_version(self) -> int:
        return self.llm.version

    def state_dict(self, trained: Sequence[Batch] = ()) -> dict[str, Any]:
        """As of a trainer that begins: none goes on from it."""
        return {"session": "first"}

    def score(self, token_ids: TokenArray) -> dict[str, LogprobArray]:
        return {SERVER: array("f", self.llm.logprobs(token_ids.tolist()))}

    def ack(self, batch: Batch) -> None:
        self.acknowledged.append(batch.batch_id)

    def finish(self) -> RunStatus:
        self.closed = True
        return self._stands(0)

    def leave(self) -> None:
        """Nobody waits for its Slots."""

    def close(self) -> None:
        """It has no threads."""

    def _stands(self, requested_batch_size: int) -> RunStatus:
        return RunStatus(
            run_id=self.run_id,
            batch_id=f"batch-{self.delivered + 1}",
            requested_batch_size=requested_batch_size,
            effective_groups=len(self.kept),
            open_groups=0,
            idle=False,
            prompts_wanted=0,
            batch_ready=False,
            counters=self.counters,
        )

    def _collect(self, groups: list[Group]) -> None:
        for group in groups:
            rewards = [result.reward or 0.0 for result in group.results]
            keep = self.criterion is Criterion.COMPLETE or len(set(rewards)) > 1
            if keep:
                self.kept.append(group)
            self.counters = Counters(
                groups_kept=self.counters.groups_kept + keep,
                groups_filtered=self.counters.groups_filtered + (not keep),
                jobs_submitted=self.counters.jobs_submitted + len(rewards),
                jobs_accepted=self.counters.jobs_accepted + len(rewards),
                rewards_sum=self.counters.rewards_sum + sum(rewards),
            )

    def _groups(self, rows: list[dict[str, Any]]) -> list[Group]:
        members = [row for row in rows for _ in range(self.group_size)]
        trajectories = self._trajectories(members)
        results = [
            self._result(row, member, trajectory)
            for member, (row, trajectory) in enumerate(zip(members, trajectories, strict=True))
        ]
        size = self.group_size
        return [
            Group(
                group_id=name_of(row),
                prompt=Prompt(prompt_id=name_of(row), instance=row),
                results=tuple(results[index * size : (index + 1) * size]),
            )
            for index, row in enumerate(rows)
        ]

    def _result(self, row: dict[str, Any], member: int, trajectory: Trajectory) -> Result:
        lease = Lease(
            job_id=f"{name_of(row)}-{member}", attempt=1, server_id="agent-1", slot="slot-1"
        )
        return Result(
            lease=lease,
            outcome=Outcome.COMPLETED,
            grade=Grade(reward=1.0 if trajectory.messages[-1].content == row["answer"] else 0.0),
            trajectory=trajectory,
        )

    def _trajectories(self, rows: list[dict[str, Any]]) -> list[Trajectory]:
        dialogues = [Dialogue(self.llm.tokenizer, row["question"]) for row in rows]
        for _ in range(2):
            waiting = [dialogue for dialogue in dialogues if not dialogue.ended]
            responses = self.llm.respond([dialogue.token_ids for dialogue in waiting])
            for dialogue, response in zip(waiting, responses, strict=True):
                dialogue.take(response)
        return [dialogue.trajectory(self.llm) for dialogue in dialogues]


def name_of(row: dict[str, Any]) -> str:
    return str(row["question"]).replace("*", "x")


class Dialogue:
    """One attempt at one question, as tokens."""

    def __init__(self, tokenizer: Any, question: str) -> None:
        self.tokenizer = tokenizer
        self.messages = [ChatMessage(role="user", content=question)]
        self.token_ids = self._encode(
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        )
        self.turns: list[Turn] = []
        self.ended = False

    def take(self, response: list[int]) -> None:
        start = len(self.token_ids)
        self.token_ids = self.token_ids + response
        self.turns.append(Turn(start=start, end=len(self.token_ids), finish_reason="stop"))
        text = self.tokenizer.decode(response).removesuffix("<|im_end|>")
        self.messages.append(ChatMessage(role="assistant", content=text))
        expression = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
        left, times, right = expression.partition("*")
        if expression == text or not (times and left.isdecimal() and right.isdecimal()):
            self.ended = True
            return
        observation = str(int(left) * int(right))
        self.messages.append(ChatMessage(role="tool", content=observation))
        if len(self.turns) < 2:
            self.token_ids = self.token_ids + self._encode(
                f"\n<|im_start|>tool\n{observation}<|im_end|>\n<|im_start|>assistant\n"
            )

    def trajectory(self, llm: FakeLLM) -> Trajectory:
        mask = [0] * len(self.token_ids)
        for turn in self.turns:
            mask[turn.start : turn.end] = [1] * (turn.end - turn.start)
        logprobs = [
            logprob if sampled else 0.0
            for logprob, sampled in zip(llm.logprobs(self.token_ids), mask, strict=True)
        ]
        return Trajectory(
            token_ids=array("i", self.token_ids),
            loss_mask=array("b", mask),
            logprobs=array("f", logprobs),
            weight_spans=tuple(
                WeightSpan(version=llm.version, start=turn.start, end=turn.end)
                for turn in self.turns
            ),
            turns=tuple(self.turns),
            messages=tuple(self.messages),
        )

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids
