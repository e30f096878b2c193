"""The Groups of a Run as its sampler sees them: read from Redis when it looks at them.

- Owns copies of what was read; the Groups themselves are Redis's, one field of a hash each.
- What is not looked at is neither read nor written, so that an event costs the same in a Run of
  ten Groups and in one of a hundred thousand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping

import msgspec

from orchestrator.queues.connection import RedisConnection, as_text
from orchestrator.sampling.state import GroupState
from rollyard import codec
from rollyard.errors import Overtaken

Read = Callable[[list[str] | None], Mapping[str, bytes]]
"""Reads the Groups of these names, as far as they exist; given None, all."""


MAX_GROUPS_AT_ONCE = 1000
"""Groups that one call reads: Redis serves nobody else meanwhile."""


class GroupChanges(msgspec.Struct, frozen=True):
    """Changes to a hash of Groups."""

    written: list[str | msgspec.Raw]
    """Names and Groups, in turn."""
    gone: list[str]


class StoredGroups(MutableMapping[str, GroupState]):
    """Groups by name, in feeding order. With `all_together`, reading one reads all."""

    def __init__(self, read: Read, *, all_together: bool = False) -> None:
        self._read = read
        self._all_together = all_together
        self._stored: dict[str, bytes] = {}
        """Name -> the Group as it was read."""
        self._known: dict[str, GroupState | None] = {}
        """Name -> the Group as it was looked at or set since; None if it does not exist."""
        self._all_known = False

    def look_up(self, names: Iterable[str]) -> None:
        """Read the Groups of these names together."""
        missing = [] if self._all_known else [name for name in names if name not in self._known]
        if missing and self._all_together:
            self._all()
        elif missing:
            self._know(self._read(missing))
            for name in missing:
                self._known.setdefault(name, None)

    def changes(self) -> GroupChanges:
        now = {
            name: codec.encode(group) for name, group in self._known.items() if group is not None
        }
        new = {name: group for name, group in now.items() if self._stored.get(name) != group}
        return _changes(new, gone=[name for name in self._stored if name not in now])

    def __getitem__(self, name: str) -> GroupState:
        group = self._known.get(name)
        if group is None and name not in self._known:
            self.look_up([name])
            group = self._known.get(name)
        if group is None:
            raise KeyError(name)
        return group

    def __setitem__(self, name: str, group: GroupState) -> None:
        self._known[name] = group

    def __delitem__(self, name: str) -> None:
        if name in self:
            self._known[name] = None
        else:
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        groups = self._all()
        return iter(sorted(groups, key=lambda name: groups[name].number))

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, GroupState]:
        if not self._all_known:
            self._know(self._read(None))
            self._all_known = True
        return {name: group for name, group in self._known.items() if group is not None}

    def _know(self, stored: Mapping[str, bytes]) -> None:
        for name, packed in stored.items():
            if name not in self._known:
                self._stored[name] = packed
                self._known[name] = codec.decode(packed, GroupState)


def changes_of(groups: MutableMapping[str, GroupState]) -> GroupChanges:
    """The changes that store these Groups; a mapping that was not read from Redis is all new."""
    if isinstance(groups, StoredGroups):
        return groups.changes()
    return _changes({name: codec.encode(group) for name, group in groups.items()}, gone=[])


def _changes(new: Mapping[str, bytes], gone: list[str]) -> GroupChanges:
    written = [part for name, group in new.items() for part in (name, as_text(group))]
    return GroupChanges(written, gone)


def groups_of_run(
    connection: RedisConnection, run_id: str, kind: str, concluded: int | None = None
) -> StoredGroups:
    """The open or complete Groups of the Run's sampler; as of `concluded`, if it is given."""
    hash_of_groups = connection.of_run(run_id, kind)

    def read_some(names: list[str]) -> Mapping[str, bytes]:
        pipe = connection.pipeline()
        pipe.hmget(hash_of_groups, names)
        pipe.hget(connection.of_run(run_id, "config"), "concluded")
        packed, concluded_now = connection.read(pipe)
        if concluded is not None and int(concluded_now or 0) != concluded:
            raise overtaken(run_id)
        return {n: each for n, each in zip(names, packed, strict=True) if each is not None}

    def read(names: list[str] | None) -> Mapping[str, bytes]:
        if names is None:
            names = [name.decode() for name in connection.do(lambda r: r.hkeys(hash_of_groups))]
        found: dict[str, bytes] = {}
        for first in range(0, len(names), MAX_GROUPS_AT_ONCE):
            found |= read_some(names[first : first + MAX_GROUPS_AT_ONCE])
        return found

    # Complete ones are no more than the Batches hold, which a Batch looks at one by one.
    return StoredGroups(read, all_together=kind == "complete")


def overtaken(run_id: str) -> Overtaken:
    return Overtaken(f"somebody else concluded events of run {run_id!r}")
