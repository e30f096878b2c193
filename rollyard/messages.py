"""What crosses a process boundary: every message, once, frozen and typed.

Token data is held in `array` objects: ids as 'i' (int32), logprobs as 'f' (float32) and the
loss mask as 'b' (int8), so that they cross a process as raw bytes (see `rollyard.codec`).
"""

import math
import re
from array import array
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from rollyard.errors import InvalidMessage

if TYPE_CHECKING:
    TokenArray = array[int]
    LogprobArray = array[float]
else:  # Python 3.11 arrays take no type parameters at run time
    TokenArray = LogprobArray = array

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""What may name a run, a prompt, a batch or a server: such names become parts of queue keys."""


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all messages: immutable, keyword-only, and strict about unknown fields."""


def check(condition: bool, problem: str, fix: str = "") -> None:
    """Raise `InvalidMessage` with `problem` unless `condition` holds."""
    if not condition:
        raise InvalidMessage(problem, fix=fix)


def check_name(name: str, what: str) -> None:
    check(
        NAME.fullmatch(name) is not None,
        f"{what} {name!r} is not a valid name",
        fix="use 1-128 letters, digits, '.', '_', ':' or '-', starting with a letter or digit",
    )


class Accepted(Message, frozen=True):
    """The request was taken; there is nothing else to say."""

    accepted: bool = True


# What a trainer asks for


class Criterion(StrEnum):
    """When a complete Group is effective, that is: worth a place in a Batch."""

    REWARD_SPREAD = "reward_spread"
    """Its rewards are not all equal (DAPO's dynamic sampling, arXiv 2503.14476 section 3.2)."""
    COMPLETE = "complete"
    """Always; for evaluation, where every Group counts."""


class Sampling(Message, frozen=True):
    """How the policy samples one response."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_response_tokens: int = 1024
    """Per Turn."""

    def __post_init__(self) -> None:
        check(0 <= self.temperature <= 10, f"temperature must be in 0..10, got {self.temperature}")
        check(0 < self.top_p <= 1, f"top_p must be in (0, 1], got {self.top_p}")
        check(
            self.max_response_tokens >= 1,
            f"max_response_tokens must be positive, got {self.max_response_tokens}",
        )


class Limits(Message, frozen=True):
    """Where a trajectory ends, whatever the policy does. Hitting one marks it truncated."""

    max_turns: int = 30
    max_tokens: int = 32768
    """Prompt, responses and observations together."""
    job_seconds: float = 1800.0
    """Wall time of RUN on the agent server."""

    def __post_init__(self) -> None:
        check(self.max_turns >= 1, f"max_turns must be positive, got {self.max_turns}")
        check(self.max_tokens >= 2, f"max_tokens must be at least 2, got {self.max_tokens}")
        check(self.job_seconds > 0, f"job_seconds must be positive, got {self.job_seconds}")


class RunSettings(Message, frozen=True):
    """One training run's namespace: how its Groups are sampled, judged and retried."""

    run_id: str
    group_size: int = 8
    criterion: Criterion = Criterion.REWARD_SPREAD
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    look_ahead_jobs: int = 1
    """Jobs kept waiting beyond the free Slots, so that a Slot never waits for the dataloader."""
    max_infra_failures: int = 3
    """Infrastructure failures after which a Job is dead."""

    def __post_init__(self) -> None:
        check_name(self.run_id, "run_id")
        check(
            self.group_size >= 1,
            f"group_size must be at least 1, got {self.group_size}",
            fix="a group is one prompt sampled group_size times; GRPO and DAPO want 2 or more",
        )
        check(
            self.group_size >= 2 or self.criterion is Criterion.COMPLETE,
            f"group_size {self.group_size} can never be effective: one reward is always equal "
            "to itself",
            fix="use group_size 2 or more, or criterion 'complete' to keep every group",
        )
        check(
            self.look_ahead_jobs >= 0,
            f"look_ahead_jobs must not be negative, got {self.look_ahead_jobs}",
        )
        check(
            self.max_infra_failures >= 1,
            f"max_infra_failures must be positive, got {self.max_infra_failures}",
        )


class Prompt(Message, frozen=True):
    """One dataset row. `instance` has at least `data_source`, which names the environment."""

    prompt_id: str
    """Unique in its Run, chosen by the trainer: feeding the same id twice feeds it once."""
    instance: dict[str, Any]

    def __post_init__(self) -> None:
        check_name(self.prompt_id, "prompt_id")
        source = self.instance.get("data_source")
        check(
            isinstance(source, str) and source != "",
            f"prompt {self.prompt_id!r} has no 'data_source'",
            fix="every dataset row needs data_source: the name of the environment that runs it",
        )

    @property
    def data_source(self) -> str:
        source: str = self.instance["data_source"]
        return source


# What runs where


class Job(Message, frozen=True):
    """One trajectory to produce: one member of one Group."""

    job_id: str
    run_id: str
    group_id: str
    member: int
    prompt: Prompt
    sampling: Sampling
    limits: Limits


class Lease(Message, frozen=True):
    """The right to run a Job once on a Slot. `attempt` rises with every lease of the Job."""

    job_id: str
    attempt: int
    server_id: str
    slot: str


class Assignment(Message, frozen=True):
    """What the dispatcher sends to an agent server."""

    job: Job
    lease: Lease


class AgentServer(Message, frozen=True):
    """An agent server as it registers: where it listens and what it can run."""

    server_id: str
    url: str
    slots: int
    environments: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.server_id, "server_id")
        check(self.slots >= 1, f"slots must be positive, got {self.slots}")


class Heartbeat(Message, frozen=True):
    """An agent server is alive and works on these leases."""

    server_id: str
    leases: tuple[Lease, ...]


class HeartbeatReply(Message, frozen=True):
    """Leases the server no longer holds: stop them. `known` false: register again."""

    known: bool
    stop: tuple[Lease, ...] = ()


class LLMNode(Message, frozen=True):
    """The control service of one node's LLM servers, as it registers."""

    node_id: str
    url: str
    servers: tuple[str, ...]
    model: str

    def __post_init__(self) -> None:
        check_name(self.node_id, "node_id")


# What comes back


class ChatMessage(Message, frozen=True):
    """One message of the conversation, as text; the tokens are the Trajectory's."""

    role: str
    content: str


class WeightSpan(Message, frozen=True):
    """The tokens start..end (half open, trajectory positions) came from one weight version."""

    version: int
    start: int
    end: int


class Turn(Message, frozen=True):
    """One response of the policy: its tokens are `token_ids[start:end]` of the Trajectory.

    The exact prompt was `token_ids[:start]`: a Turn's prompt is always the previous prompt,
    response and observation, so the Trajectory holds every token once.
    """

    start: int
    end: int
    finish_reason: str
    """`stop` (the policy ended its turn), `length` (out of tokens) or `abort`."""


class Trajectory(Message, frozen=True):
    """The Turns of one attempt, token-exact. All arrays have one entry a token."""

    token_ids: TokenArray
    loss_mask: TokenArray
    """1 where the policy sampled the token, 0 for prompt and observations."""
    logprobs: LogprobArray
    """Of the sampled tokens, under the weights that sampled them; 0.0 where the mask is 0."""
    weight_spans: tuple[WeightSpan, ...]
    turns: tuple[Turn, ...]
    messages: tuple[ChatMessage, ...]
    truncated: bool = False
    """A turn, token or time limit ended it, not the policy."""

    def __post_init__(self) -> None:
        tokens = len(self.token_ids)
        check(
            len(self.loss_mask) == tokens and len(self.logprobs) == tokens,
            f"trajectory arrays differ in length: {tokens} token_ids, {len(self.loss_mask)} "
            f"loss_mask, {len(self.logprobs)} logprobs",
        )
        check(
            not any(map(math.isnan, self.logprobs)),
            "trajectory has NaN logprobs",
            fix="look at the LLM server's log: NaN logprobs mean broken weights",
        )

    @property
    def prompt_length(self) -> int:
        """Tokens before the policy's first one."""
        return self.turns[0].start if self.turns else len(self.token_ids)


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    """The policy's own doing: it has a reward, also when it is wrong or was truncated."""
    INFRA_FAILED = "infra_failed"
    """Ours: never a reward, always retried."""
    CANCELLED = "cancelled"
    """Stopped because nobody needs it now."""


class Timings(Message, frozen=True):
    """Seconds an attempt spent in each stage."""

    init_seconds: float = 0.0
    run_seconds: float = 0.0
    eval_seconds: float = 0.0


class Result(Message, frozen=True):
    """How one attempt of a Job ended. Exactly one completed Result is accepted per Job."""

    lease: Lease
    outcome: Outcome
    reward: float | None = None
    trajectory: Trajectory | None = None
    error: str = ""
    """Why, for anything but `completed`."""
    timings: Timings = Timings()

    def __post_init__(self) -> None:
        if self.outcome is Outcome.COMPLETED:
            check(self.trajectory is not None, "a completed result needs its trajectory")
            check(
                self.reward is not None and math.isfinite(self.reward),
                f"a completed result needs a finite reward, got {self.reward}",
            )
        else:
            check(self.reward is None, f"a result that {self.outcome} must not carry a reward")


class Group(Message, frozen=True):
    """A Prompt and the Results of its `group_size` Jobs, in member order."""

    group_id: str
    prompt: Prompt
    results: tuple[Result, ...]


class Counters(Message, frozen=True):
    """What became of a Run's work so far. Jobs are conserved:
    jobs_submitted = jobs_queued + jobs_leased + jobs_accepted + jobs_dead + jobs_dropped.
    """

    groups_kept: int = 0
    """Effective and delivered, or waiting for the next Batch."""
    groups_filtered: int = 0
    """Complete, but not effective."""
    groups_dead: int = 0
    """Abandoned with a dead Job."""
    jobs_submitted: int = 0
    jobs_queued: int = 0
    jobs_leased: int = 0
    jobs_accepted: int = 0
    jobs_dead: int = 0
    jobs_dropped: int = 0
    """Cancelled for good."""
    attempts_stopped: int = 0
    """Running attempts stopped by early termination."""
    jobs_recycled: int = 0
    """Unfinished Jobs kept for the next step at early termination."""
    attempts_failed: int = 0
    """Attempts ended by an infrastructure failure."""
    rewards_sum: float = 0.0
    """Over jobs_accepted: the unfiltered mean reward is rewards_sum / jobs_accepted."""


class Batch(Message, frozen=True):
    """What one training step consumes. Fetchable again until it is acknowledged."""

    batch_id: str
    run_id: str
    groups: tuple[Group, ...]
    counters: Counters


class RunStatus(Message, frozen=True):
    """Where a Run stands; also what a trainer waiting for a Batch is told."""

    run_id: str
    batch_id: str | None
    """The Batch requested and not yet acknowledged."""
    requested_batch_size: int
    effective_groups: int
    """Ready for the requested Batch."""
    open_groups: int
    idle: bool
    """Nothing of the Run is queued, running or being collected."""
    prompts_wanted: int
    """Prompts to feed now."""
    batch_ready: bool
    counters: Counters
    waiting_for: str = ""
    """One sentence: what the Batch is waiting for."""


class BatchRequest(Message, frozen=True):
    batch_id: str
    requested_batch_size: int

    def __post_init__(self) -> None:
        check_name(self.batch_id, "batch_id")
        check(
            self.requested_batch_size >= 1,
            f"requested_batch_size must be at least 1, got {self.requested_batch_size}",
        )


# Weights


class WeightUpdate(Message, frozen=True):
    """Load the checkpoint at `path` on every LLM server and call it `version`."""

    path: str
    version: int


class WeightReport(Message, frozen=True):
    """The LLM servers that now serve `version`, and how long they stood still for it."""

    version: int
    servers: tuple[str, ...]
    paused_seconds: float


class WeightVersion(Message, frozen=True):
    """What the LLM servers serve now."""

    version: int


class ScoreRequest(Message, frozen=True):
    """Ask every LLM server for the logprobs it gives to these tokens."""

    token_ids: TokenArray


class Scores(Message, frozen=True):
    """LLM server URL -> logprob of each token given those before it; entry 0 is 0.0."""

    logprobs: dict[str, LogprobArray]


# What people look at


class OccupancyPoint(Message, frozen=True):
    """How many Slots of each agent server ran a Job from `at` (unix seconds) on."""

    at: float
    busy: dict[str, int]


class Occupancy(Message, frozen=True):
    """Slot occupancy over time, oldest first; `slots` is each server's number of Slots."""

    slots: dict[str, int]
    points: tuple[OccupancyPoint, ...]


class AgentServerStatus(Message, frozen=True):
    server_id: str
    url: str
    slots: int
    busy_slots: int
    environments: tuple[str, ...]


class YardStatus(Message, frozen=True):
    """Everything an operator sees at a glance."""

    runs: tuple[RunStatus, ...]
    servers: tuple[AgentServerStatus, ...]
    llm_nodes: tuple[LLMNode, ...]
