"""What a trainer asks for: a Run and its Prompts."""

import math
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from rollyard.messages.base import (
    MOST,
    Message,
    Name,
    Positive,
    check,
    check_most,
    check_name,
    described,
)

MAX_MEMBERS = 65_536
"""Every Job of a Group is written in one atomic move."""
MAX_REDUNDANT = 1024
"""Members of a Group beyond `group_size`."""
MAX_NESTED = 64
"""Of a dataset row: deeper ones can be read in some processes and not in others."""
MAX_JOB_SECONDS = 31 * 86400.0
"""A timer for much longer, such as for infinity, cannot be set."""
JobSeconds = Annotated[float, described(exclusiveMinimum=0, maximum=MAX_JOB_SECONDS)]
Members = Annotated[int, described(minimum=1, maximum=MAX_MEMBERS)]
Redundant = Annotated[int, described(minimum=0, maximum=MAX_REDUNDANT)]
AtLeastTwo = Annotated[int, msgspec.Meta(le=MOST, extra_json_schema={"minimum": 2})]
NotNegative = Annotated[int, msgspec.Meta(le=MOST, extra_json_schema={"minimum": 0})]
Instance = Annotated[
    dict[str, Any],
    described(
        description=f"Nested at most {MAX_NESTED} deep.",
        required=["data_source"],
        properties={"data_source": {"type": "string", "minLength": 1}},
    ),
]


class Criterion(StrEnum):
    """When a complete Group is effective, that is: worth a place in a Batch.

    A member is solved when its reward is at least `RunSettings.solved_at`.
    """

    REWARD_SPREAD = "reward_spread"
    """Its rewards are not all equal (DAPO's dynamic sampling, arXiv 2503.14476 section 3.2)."""
    PARTLY_SOLVED = "partly_solved"
    """Some, but not all, of its members are solved."""
    ANY_SOLVED = "any_solved"
    """At least one of its members is solved."""
    COMPLETE = "complete"
    """Always; for evaluation, where every Group counts."""


class Unit(StrEnum):
    """What `requested_batch_size` counts."""

    GROUPS = "groups"
    """Effective Groups, each with all its members."""
    TRAJECTORIES = "trajectories"
    """Effective trajectories: each member is judged, and delivered, for itself."""


class Recycling(StrEnum):
    """What becomes of unfinished Jobs when a Batch is complete."""

    RESUME = "resume"
    """Parked at their turn boundary, and continued under the next weights."""
    RESTART = "restart"
    """Stopped, and begun again, first in line, for the next Batch."""
    DISCARD = "discard"
    """Dropped with their Groups: the next Batch begins with nothing."""


NO_BOUND = 2**31 - 1
"""As `max_staleness`: trajectories of any age are welcome."""


class Prediction(Message, frozen=True):
    """Ways to spend less on Groups that may teach nothing. Each is a bet, so each is off by
    default, counted, and reported with every Batch."""

    skip_by_history: bool = False
    """Skip Prompts whose earlier Groups say that this one would hardly be effective."""
    forgetting: Annotated[float, described(minimum=0, exclusiveMaximum=1)] = 0.07
    """Share of what is known of a Prompt that is forgotten with each Batch: policies drift."""
    stage_members: Redundant = 0
    """Begin with so many members of a Group, and with the others only if they can still make it
    effective at a good price; 0, and `group_size`, begin with all."""
    redundant_members: Redundant = 0
    """Members beyond `group_size`: the first `group_size` to finish are the Group."""
    launch_order: bool = False
    """Groups enter Batches in the order they were fed, so that none wins by being short."""

    def __post_init__(self) -> None:
        for name in ("stage_members", "redundant_members"):
            value = getattr(self, name)
            check(value >= 0, f"{name} must not be negative, got {value}")
            check_most(value, MAX_REDUNDANT, name)
        check(
            0 <= self.forgetting < 1,
            f"forgetting must be at least 0 and below 1, got {self.forgetting}",
        )


class Sampling(Message, frozen=True):
    """How the policy samples one response."""

    temperature: Annotated[float, described(minimum=0, maximum=10)] = 1.0
    top_p: Annotated[float, described(exclusiveMinimum=0, maximum=1)] = 1.0
    max_response_tokens: Positive = 1024
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

    max_turns: Positive = 30
    max_tokens: AtLeastTwo = 32768
    """Prompt, responses and observations together."""
    job_seconds: JobSeconds = 1800.0
    """Wall time of RUN on the agent server, less the time it was parked."""
    parked_seconds: JobSeconds = 14400.0
    """A Job that is parked for longer is given back and starts anew, uncharged."""

    def __post_init__(self) -> None:
        check(self.max_turns >= 1, f"max_turns must be positive, got {self.max_turns}")
        check(self.max_tokens >= 2, f"max_tokens must be at least 2, got {self.max_tokens}")
        check(self.job_seconds > 0, f"job_seconds must be positive, got {self.job_seconds}")
        check_most(self.job_seconds, MAX_JOB_SECONDS, "job_seconds")
        check(
            self.parked_seconds > 0, f"parked_seconds must be positive, got {self.parked_seconds}"
        )
        check_most(self.parked_seconds, MAX_JOB_SECONDS, "parked_seconds")


class RunSettings(Message, frozen=True):
    """One training run's namespace: how its Groups are sampled, judged and retried."""

    run_id: Name
    group_size: Members = 8
    criterion: Criterion = Criterion.REWARD_SPREAD
    solved_at: float = 1.0
    """The least reward of a solved trajectory."""
    unit: Unit = Unit.GROUPS
    recycling: Recycling = Recycling.RESUME
    max_staleness: NotNegative = 1
    """Weight versions that the oldest token of a trajectory may lie behind those that its Batch
    updates; a member beyond that is begun again. `NO_BOUND` allows any age."""
    prediction: Prediction = Prediction()
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    look_ahead_jobs: NotNegative = 1
    """Jobs kept waiting beyond the free Slots, so that a Slot never waits for the dataloader."""
    trainer_silent_seconds: JobSeconds = 5.0
    """A trainer that is not heard of for so long may be gone: its parked Jobs give way to another
    Run that waits for Slots. While its process lives it is heard of every second."""
    failing_groups: Positive = 3
    """Groups that die one after the other, with no Job that succeeds in between, until `rollout`
    raises `RunFailing` instead of spending more of the dataset; never fewer than are open then."""
    max_infra_failures: Positive = 6
    """Failed attempts after which a Job is dead. A Job lost with its agent server is charged to
    that server first: three different servers lost are the end of it, the same server lost again
    is a failure like any other."""

    def __post_init__(self) -> None:
        check_name(self.run_id, "run_id")
        check(
            self.group_size >= 1,
            f"group_size must be at least 1, got {self.group_size}",
            fix="a group is one prompt sampled group_size times; GRPO and DAPO want 2 or more",
        )
        check_most(self.group_size, MAX_MEMBERS, "group_size")
        alone = self.group_size == 1 or self.unit is Unit.TRAJECTORIES
        check(
            not alone or self.criterion in (Criterion.ANY_SOLVED, Criterion.COMPLETE),
            f"a single trajectory can never be effective by '{self.criterion}': its reward "
            "is always equal to itself",
            fix="use group_size 2 or more and unit 'groups', or the criterion 'any_solved' or "
            "'complete'",
        )
        check(math.isfinite(self.solved_at), f"solved_at must be finite, got {self.solved_at}")
        check(
            self.max_staleness >= 0,
            f"max_staleness must not be negative, got {self.max_staleness}",
        )
        self._check_prediction()
        check(
            self.look_ahead_jobs >= 0,
            f"look_ahead_jobs must not be negative, got {self.look_ahead_jobs}",
        )
        check(
            self.trainer_silent_seconds > 0,
            f"trainer_silent_seconds must be positive, got {self.trainer_silent_seconds}",
        )
        check_most(self.trainer_silent_seconds, MAX_JOB_SECONDS, "trainer_silent_seconds")
        check(
            self.failing_groups >= 1,
            f"failing_groups must be positive, got {self.failing_groups}",
        )
        check(
            self.max_infra_failures >= 1,
            f"max_infra_failures must be positive, got {self.max_infra_failures}",
        )

    @property
    def members(self) -> int:
        """Jobs that a Group may come to have."""
        return self.group_size + self.prediction.redundant_members

    @property
    def first_stage(self) -> int:
        """Members that a Group begins with."""
        return min(self.prediction.stage_members or self.members, self.members)

    @property
    def first_members(self) -> int:
        """Jobs that a Group has from the start; the sampler adds the others."""
        return 0 if self.prediction.skip_by_history else self.first_stage

    def _check_prediction(self) -> None:
        bets = self.prediction
        check(
            self.unit is Unit.GROUPS or bets == Prediction(forgetting=bets.forgetting),
            "predictions are of groups, and unit is 'trajectories'",
            fix="leave them off, or use unit 'groups'",
        )


def nested_deeper(value: Any, most: int) -> bool:
    """Whether lists and dicts stand in each other more than `most` times."""
    if not isinstance(value, dict | list | tuple):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return most == 0 or any(nested_deeper(part, most - 1) for part in parts)


class Prompt(Message, frozen=True):
    """One dataset row. `instance` has at least `data_source`, which names the environment."""

    prompt_id: Name
    """Unique in its Run, chosen by the trainer: feeding the same id twice feeds it once."""
    instance: Instance

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
