"""State of the sampler, small enough to be stored after every event."""

from collections.abc import Iterable, MutableMapping

import msgspec

from orchestrator.events import Tried
from orchestrator.sampling.decisions import Chosen
from orchestrator.sampling.ledger import Ledger

MAX_DEATHS_KNOWN = 8
"""Deaths that are kept for the trainer's error, the latest ones."""
MAX_REASON_CHARACTERS = 300
"""Length to which the reason of a death is cut."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A finished member of a Group."""

    reward: float
    weight_version: int
    """Weight version of its oldest token."""
    seconds: float
    """Time on its Slot, excluding time parked."""


class GroupState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A Group that is open or complete."""

    number: int
    """Position in feeding order, from 0."""
    asked: int
    """Number of members enqueued so far: members 0 to `asked` - 1 are Jobs."""
    done: dict[int, Member] = {}
    """Member -> how it finished."""
    given_up: list[int] = []
    """Members that the Group does without: dead, cancelled, or redundant."""
    row: str = ""
    """Name of its dataset row, as in `PromptFed`."""
    tried: Tried | None = None
    """History of its dataset row when it was fed; None for the row's first Group, and where no
    history is kept."""
    learnt: bool = False
    """True once the statistics of dataset rows include its outcome."""

    @property
    def seconds(self) -> float:
        return sum(member.seconds for member in self.done.values())

    def unfinished(self) -> list[int]:
        settled = {*self.done, *self.given_up}
        return [member for member in range(self.asked) if member not in settled]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A Batch that is requested and not complete."""

    batch_id: str
    requested_batch_size: int
    weight_version: int
    """Weight version that it will update."""


class Death(msgspec.Struct, frozen=True, array_like=True):
    """A Group that was dropped because one of its Jobs died."""

    group_id: str
    reason: str


class SamplerState(msgspec.Struct, kw_only=True):
    open: MutableMapping[str, GroupState] = {}
    """Groups with unfinished members, in feeding order."""
    complete: MutableMapping[str, GroupState] = {}
    """Groups without unfinished members that have members ready or delivered, or that wait for
    earlier Groups."""
    ready: list[Chosen] = []
    """Groups, or single members, that may enter a Batch, in the order of becoming ready."""
    wanted: list[Wanted] = []
    """Batches requested and not complete; the first is being sampled."""
    delivered: dict[str, tuple[Chosen, ...]] = {}
    """Batches complete and not acknowledged, oldest first, with what they contain."""
    acknowledged: list[str] = []
    """The latest acknowledged Batches: another request for one of them is ignored."""
    begun: dict[str, int] = {}
    """Leased Job -> weight version it began under, if that may be too old for a wanted Batch."""
    pass_counts: dict[str, int] = {}
    """"solved/members" -> number of Groups, each the first of its dataset row; for predictions
    only."""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    deaths: list[Death] = []
    """The latest deaths since a Job succeeded, or since the trainer decided to continue."""
    dead_in_a_row: int = 0
    """Number of all deaths since then."""
    batches_delivered: int = 0
    groups_fed: int = 0
    groups_kept: int = 0
    groups_filtered: int = 0
    groups_dead: int = 0
    groups_cancelled: int = 0
    groups_skipped: int = 0
    groups_cut_short: int = 0
    groups_discarded: int = 0
    members_restarted: int = 0
    restarted_before: int = 0
    """`members_restarted` when the sampling of the Batch began."""
    members_redundant: int = 0
    closed: bool = False

    @property
    def outstanding(self) -> tuple[str, ...]:
        """Batches requested and not acknowledged, oldest first."""
        return (*self.delivered, *(wanted.batch_id for wanted in self.wanted))

    def min_weights(self, max_staleness: int) -> int:
        """The oldest weight version that a token of the Batch that is sampled may have."""
        return max(0, self.wanted[0].weight_version - max_staleness) if self.wanted else 0

    def knows(self, batch_id: str) -> bool:
        """Whether the Batch was requested before, as far back as that is remembered."""
        return batch_id in self.outstanding or batch_id in self.acknowledged

    @property
    def delivered_members(self) -> set[tuple[str, int]]:
        """(Group, member) pairs in Batches that are delivered and not acknowledged."""
        return {
            (chosen.group_id, member)
            for batch in self.delivered.values()
            for chosen in batch
            for member in chosen.members
        }

    @property
    def placed_groups(self) -> set[str]:
        """Groups with members that are in a delivered Batch, or ready for one."""
        batches = (chosen for batch in self.delivered.values() for chosen in batch)
        return {chosen.group_id for chosen in (*self.ready, *batches)}

    def died(self, group_id: str, reason: str) -> None:
        """Record the death of a Group; further dead Jobs of the same Group do not count."""
        if all(death.group_id != group_id for death in self.deaths):
            death = Death(group_id, reason[:MAX_REASON_CHARACTERS])
            self.deaths = [*self.deaths, death][-MAX_DEATHS_KNOWN:]
            self.dead_in_a_row += 1

    def begin_counting_deaths(self) -> None:
        self.deaths, self.dead_in_a_row = [], 0

    def fates(self) -> dict[str, int]:
        """Counts of Groups and members by fate, named as in `Counters`. `groups_fed` is not among
        them: the queues count it."""
        return {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name.startswith(("groups_", "members_")) and name != "groups_fed"
        }

    def group(self, name: str) -> GroupState:
        """The open or complete Group of this name."""
        return self.open.get(name) or self.complete[name]

    def close(self, name: str) -> None:
        """Make an open Group complete."""
        self.complete[name] = self.open.pop(name)

    def reopen(self, name: str) -> None:
        """Make a complete Group open again."""
        self.open[name] = self.complete.pop(name)

    def members(self, choice: Iterable[Chosen]) -> list[Member]:
        chosen = ((self.group(each.group_id).done, each.members) for each in choice)
        return [done[member] for done, members in chosen for member in members]
