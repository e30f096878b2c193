"""Runs and Prompts: the settings and the dataset rows that a trainer sends."""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from rollyard.messages.base import (
    MOST,
    NAME,
    Message,
    Name,
    Positive,
    check,
    check_least,
    check_most,
    check_name,
    described,
)

MAX_MEMBERS = 65_536
"""Limit on the Jobs of a Group, all of which are written in one atomic move."""
MAX_REDUNDANT = 1024
"""Limit on the members of a Group beyond `group_size`."""
MAX_NESTED = 64
"""Limit on the nesting of a dataset row: decoders differ in how deep they can recurse."""
MAX_JOB_SECONDS = 31 * 86400.0
"""Limit on a Job's times: threading refuses a timeout of much more, such as infinity."""
JobSeconds = Annotated[float, described(exclusiveMinimum=0, maximum=MAX_JOB_SECONDS)]
Members = Annotated[int, described(minimum=1, maximum=MAX_MEMBERS)]
Tags = Annotated[
    tuple[str, ...], described(items={"type": "string", "pattern": f"^{NAME.pattern}$"})
]
Redundant = Annotated[int, described(minimum=0, maximum=MAX_REDUNDANT)]
AtLeastTwo = Annotated[int, msgspec.Meta(le=MOST, extra_json_schema={"minimum": 2})]
NotNegative = Annotated[int, msgspec.Meta(le=MOST, extra_json_schema={"minimum": 0})]
Instance = Annotated[
    dict[str, Any],
    described(
        description=f"Nested at most {MAX_NESTED} deep.",
        required=["data_source"],
        properties={
            "data_source": {"type": "string", "minLength": 1},
            "tags": {
                "type": ["array", "null"],
                "items": {"type": "string", "pattern": f"^{NAME.pattern}$"},
            },
        },
    ),
]


class Criterion(StrEnum):
    """When a complete Group is effective, that is: worth a place in a Batch.

    A member is solved when its reward is at least `RunSettings.solved_at`.
    """

    REWARD_SPREAD = "reward_spread"
    """The Group's rewards are not all equal (DAPO's dynamic sampling, arXiv 2503.14476 section
    3.2)."""
    PARTLY_SOLVED = "partly_solved"
    """Some, but not all, members are solved."""
    ANY_SOLVED = "any_solved"
    """At least one member is solved."""
    COMPLETE = "complete"
    """Every Group is effective, as in evaluation."""


class Unit(StrEnum):
    """The unit of `requested_batch_size`."""

    GROUPS = "groups"
    """Effective Groups, each with all its members."""
    TRAJECTORIES = "trajectories"
    """Effective trajectories: each member is judged, and delivered, on its own."""


class Recycling(StrEnum):
    """Treatment of unfinished Jobs when a Batch is complete."""

    RESUME = "resume"
    """Jobs are parked where they are, and continued under the next weights."""
    RESTART = "restart"
    """Jobs are stopped and requeued at the head, to begin anew for the next Batch."""
    DISCARD = "discard"
    """Jobs are dropped with their Groups: the next Batch begins with nothing."""


NO_BOUND = 2**31 - 1
"""A value of `max_staleness` that accepts trajectories of any staleness."""


class Prediction(Message, frozen=True):
    """Ways to spend less on Groups that are unlikely to be effective. A prediction may be wrong,
    so each is off by default, counted, and reported with every Batch."""

    skip_by_history: bool = False
    """Skip Prompts whose earlier Groups predict that this one is unlikely to be effective."""
    forgetting: Annotated[float, described(minimum=0, exclusiveMaximum=1)] = 0.07
    """Share of a dataset row's history that is forgotten with each Batch, as the policy drifts."""
    stage_members: Redundant = 0
    """Members in the first stage of a Group. The others begin only if they can still make it
    effective, at less cost than a new Group. 0 and `group_size` begin all members at once."""
    redundant_members: Redundant = 0
    """Members beyond `group_size`: the first `group_size` to finish are the Group."""
    launch_order: bool = False
    """Groups enter Batches in the order they were fed, so that none wins by being short."""

    def __post_init__(self) -> None:
        for name in ("stage_members", "redundant_members"):
            check_least(getattr(self, name), 0, name)
            check_most(getattr(self, name), MAX_REDUNDANT, name)
        check(
            0 <= self.forgetting < 1,
            f"forgetting must be at least 0 and below 1, got {self.forgetting}",
        )


class Sampling(Message, frozen=True):
    """How the policy samples one response."""

    temperature: Annotated[float, described(minimum=0, maximum=10)] = 1.0
    top_p: Annotated[float, described(exclusiveMinimum=0, maximum=1)] = 1.0
    max_response_tokens: Positive = 1024
    """Limit on the tokens of one response, that is, of one Turn."""

    def __post_init__(self) -> None:
        check(0 <= self.temperature <= 10, f"temperature must be in 0..10, got {self.temperature}")
        check(0 < self.top_p <= 1, f"top_p must be in (0, 1], got {self.top_p}")
        check_least(self.max_response_tokens, 1, "max_response_tokens")


class Limits(Message, frozen=True):
    """Limits on a trajectory. One that reaches a turn, token or time limit is truncated."""

    max_turns: Positive = 30
    max_tokens: AtLeastTwo = 32768
    """Tokens of prompt, responses and observations together, in each sequence of a trajectory."""
    job_seconds: JobSeconds = 1800.0
    """Wall time of RUN on the agent server, excluding time parked."""
    parked_seconds: JobSeconds = 14400.0
    """Time after which a parked Job is given back; it starts anew, and is not charged for it."""

    def __post_init__(self) -> None:
        check_least(self.max_turns, 1, "max_turns")
        check_least(self.max_tokens, 2, "max_tokens")
        _check_seconds(self.job_seconds, "job_seconds")
        _check_seconds(self.parked_seconds, "parked_seconds")


def _check_seconds(seconds: float, what: str) -> None:
    check(seconds > 0, f"{what} must be positive, got {seconds}")
    check_most(seconds, MAX_JOB_SECONDS, what)


class RunSettings(Message, frozen=True):
    """Settings of one training run: how its Groups are sampled, judged and retried."""

    run_id: Name
    group_size: Members = 8
    criterion: Criterion = Criterion.REWARD_SPREAD
    solved_at: float = 1.0
    """Minimum reward of a solved trajectory."""
    unit: Unit = Unit.GROUPS
    recycling: Recycling = Recycling.RESUME
    max_staleness: NotNegative = 1
    """Maximum staleness of a Batch's tokens: the weight versions by which the oldest token of a
    trajectory may lie behind those that the Batch updates. A member that exceeds it is sampled
    anew. `NO_BOUND` accepts any."""
    prediction: Prediction = Prediction()
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    tags: Tags = ()
    """Tags that an agent server must have to run the Run's Jobs; a row's own `tags` replace
    them."""
    look_ahead_jobs: NotNegative = 1
    """Jobs kept queued beyond the free Slots, so that a Slot never waits for the dataloader."""
    trainer_silent_seconds: JobSeconds = 5.0
    """Silence after which a trainer may be gone, so that its parked Jobs give way to another Run
    that waits for Slots. A trainer whose process lives sends a sign of life every second."""
    failing_groups: Positive = 3
    """Groups that die in a row, with no Job that succeeds in between, before `rollout` raises
    `RunFailing` instead of spending more of the dataset. While more Groups than that are open, it
    takes as many deaths as there are open Groups."""
    max_infra_failures: Positive = 6
    """Failed attempts after which a Job is dead. A Job lost with its agent server is first charged
    to that server: a Job dies once it was lost with three different servers, and a second loss
    with the same server counts as a failure."""

    def __post_init__(self) -> None:
        check_name(self.run_id, "run_id")
        check_least(
            self.group_size,
            1,
            "group_size",
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
        check_least(self.max_staleness, 0, "max_staleness")
        check(
            self.unit is Unit.GROUPS
            or self.prediction == Prediction(forgetting=self.prediction.forgetting),
            "predictions are of groups, and unit is 'trajectories'",
            fix="leave them off, or use unit 'groups'",
        )
        check_tags(self.tags)
        check_least(self.look_ahead_jobs, 0, "look_ahead_jobs")
        _check_seconds(self.trainer_silent_seconds, "trainer_silent_seconds")
        check_least(self.failing_groups, 1, "failing_groups")
        check_least(self.max_infra_failures, 1, "max_infra_failures")

    @property
    def members(self) -> int:
        """Maximum number of Jobs in a Group, redundant ones included."""
        return self.group_size + self.prediction.redundant_members

    @property
    def first_stage(self) -> int:
        """Number of members in the first stage of a Group."""
        return min(self.prediction.stage_members or self.members, self.members)

    @property
    def first_members(self) -> int:
        """Number of Jobs enqueued as the Prompt is fed; the sampler adds the others."""
        return 0 if self.prediction.skip_by_history else self.first_stage


def check_tags(tags: Iterable[str]) -> None:
    check(not isinstance(tags, str), f"tags must be a list of names, got {tags!r}")
    for tag in tags:
        check_name(tag, "tag")


def is_list_of_tags(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(tag, str) and NAME.fullmatch(tag) for tag in value)


def nested_deeper(value: Any, most: int) -> bool:
    """Whether lists and dicts are nested more than `most` levels deep."""
    if not isinstance(value, dict | list | tuple):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return most == 0 or any(nested_deeper(part, most - 1) for part in parts)


class Prompt(Message, frozen=True):
    """One dataset row. `instance` has at least `data_source`, which names the environment, and may
    have `tags`."""

    prompt_id: Name
    """Name chosen by the trainer, unique in its Run: the same id fed twice is one Prompt."""
    instance: Instance

    def __post_init__(self) -> None:
        check_name(self.prompt_id, "prompt_id")
        source = self.instance.get("data_source")
        check(
            isinstance(source, str) and source != "",
            f"prompt {self.prompt_id!r} has no 'data_source'",
            fix="every dataset row needs data_source: the name of the environment that runs it",
        )
        tags = self.instance.get("tags")
        check(
            tags is None or is_list_of_tags(tags),
            f"the 'tags' of prompt {self.prompt_id!r} are not a list of tags of agent servers",
            fix="make them a list of names like 'gpu'; a column that means something else needs "
            "another name",
        )

    @property
    def data_source(self) -> str:
        source: str = self.instance["data_source"]
        return source

    @property
    def tags(self) -> tuple[str, ...] | None:
        """Tags that an agent server must have to run it; None if those of its Run apply."""
        tags = self.instance.get("tags")
        return None if tags is None else tuple(tags)
