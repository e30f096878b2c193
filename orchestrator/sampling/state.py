"""What the sampler knows, small enough to be stored after every event."""

from collections.abc import Iterable, MutableMapping

import msgspec

from orchestrator.events import Tried
from orchestrator.sampling.decisions import Chosen
from orchestrator.sampling.ledger import Ledger

MAX_DEATHS_KNOWN = 8
MAX_REASON_CHARACTERS = 300
"""Of a death."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A finished member of a Group."""

    reward: float
    weight_version: int
    """Of its oldest token."""
    seconds: float
    """Time on its Slot."""


class GroupState(msgspec.Struct, kw_only=True, omit_defaults=True):
    number: int
    """Groups are numbered as they are fed."""
    asked: int
    """Members 0..asked are Jobs; the others are not, or not yet."""
    done: dict[int, Member] = {}
    given_up: list[int] = []
    """Members that the Group does without."""
    row: str = ""
    tried: Tried | None = None
    learnt: bool = False
    """What it says of its dataset row is noted."""

    @property
    def seconds(self) -> float:
        return sum(member.seconds for member in self.done.values())

    def unfinished(self) -> list[int]:
        gone = {*self.done, *self.given_up}
        return [member for member in range(self.asked) if member not in gone]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A Batch requested and not complete."""

    batch_id: str
    requested_batch_size: int
    weight_version: int
    """That it will update."""


class Death(msgspec.Struct, frozen=True, array_like=True):
    """A Group that died of one of its Jobs."""

    group_id: str
    reason: str


class SamplerState(msgspec.Struct, kw_only=True):
    open: MutableMapping[str, GroupState] = {}
    """Groups with unfinished members, in feeding order."""
    complete: MutableMapping[str, GroupState] = {}
    """Groups without, of which something is ready or delivered, or waits for earlier Groups."""
    ready: list[Chosen] = []
    """What may enter a Batch, in the order it became so."""
    wanted: list[Wanted] = []
    """The first is being sampled."""
    delivered: dict[str, tuple[Chosen, ...]] = {}
    """Batches complete and not acknowledged, oldest first."""
    acknowledged: list[str] = []
    """The last Batches that were: a request for one of them comes too late."""
    begun: dict[str, int] = {}
    """Job -> weight version it began under, of those that may be too old for a wanted Batch."""
    pass_counts: dict[str, int] = {}
    """"solved/of" -> Groups, each the first of its dataset row; for predictions only."""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    deaths: list[Death] = []
    """The last of those that died since a Job succeeded, or the trainer went on all the same."""
    dead_in_a_row: int = 0
    """How many those are."""
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
        """Whether the Batch was requested, as far back as anybody may ask again."""
        return batch_id in self.outstanding or batch_id in self.acknowledged

    @property
    def delivered_members(self) -> set[tuple[str, int]]:
        """Group and member of what is in a Batch that is not acknowledged."""
        return {
            (chosen.group_id, member)
            for batch in self.delivered.values()
            for chosen in batch
            for member in chosen.members
        }

    @property
    def placed_groups(self) -> set[str]:
        """Groups of which something is in a Batch or may enter one."""
        batches = (chosen for batch in self.delivered.values() for chosen in batch)
        return {chosen.group_id for chosen in (*self.ready, *batches)}

    def died(self, group_id: str, reason: str) -> None:
        """A Job of the Group is dead; of a Group's Jobs one counts."""
        if all(death.group_id != group_id for death in self.deaths):
            death = Death(group_id, reason[:MAX_REASON_CHARACTERS])
            self.deaths = [*self.deaths, death][-MAX_DEATHS_KNOWN:]
            self.dead_in_a_row += 1

    def begin_counting_deaths(self) -> None:
        self.deaths, self.dead_in_a_row = [], 0

    def fates(self) -> dict[str, int]:
        """What became of Groups and members, named as in `Counters`; those fed are the queues'."""
        return {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name.startswith(("groups_", "members_")) and name != "groups_fed"
        }

    def group(self, name: str) -> GroupState:
        """One that is open or complete."""
        return self.open.get(name) or self.complete[name]

    def close(self, name: str) -> None:
        """An open Group is complete."""
        self.complete[name] = self.open.pop(name)

    def reopen(self, name: str) -> None:
        """A complete Group has unfinished members again."""
        self.open[name] = self.complete.pop(name)

    def members(self, choice: Iterable[Chosen]) -> list[Member]:
        chosen = ((self.group(each.group_id).done, each.members) for each in choice)
        return [done[member] for done, members in chosen for member in members]
