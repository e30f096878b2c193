"""Recorded trajectories, one JSON object a line, and the workload that they make.

`recorded` takes them from a Batch. Only a Run whose criterion is `complete` has all trajectories in
its Batches; any other criterion leaves those out that teach nothing.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Timings
from simulator.chance import uniforms
from simulator.dataset import Draw, Try, shuffled_prompt


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trajectory."""

    row: str
    """Names the dataset row."""
    member: int = 0
    reward: float
    seconds: float
    """On its Slot."""
    turns: int = 0

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds must be positive, got {self.seconds}")


def recorded(batch: Batch) -> list[Recorded]:
    """The trajectories of a Batch; rows are named by the `id` in their instance, else by Prompt."""
    return [
        Recorded(
            row=str(group.prompt.instance.get("id", group.prompt.prompt_id)),
            member=member,
            reward=result.reward or 0.0,
            seconds=max(1e-3, _seconds(result.timings)),
            turns=len(result.trajectory.turns) if result.trajectory else 0,
        )
        for group in batch.groups
        for member, result in enumerate(group.results)
    ]


def write_trace(path: Path, trajectories: Iterable[Recorded]) -> None:
    path.write_bytes(msgspec.json.Encoder().encode_lines(trajectories))


def read_trace(path: Path) -> list[Recorded]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidMessage(
            f"cannot read the trace {path}: {error.strerror}",
            fix="give a file of one JSON object a line, or leave it out",
        ) from error
    trajectories = [_parsed(path, number, line) for number, line in enumerate(lines, 1) if line]
    if not trajectories:
        raise InvalidMessage(f"the trace {path} is empty", fix="record a run with `write_trace`")
    return trajectories


class Trace:
    """A workload of recorded trajectories: a member's is drawn from those of its row."""

    def __init__(self, trajectories: Sequence[Recorded], seed: int) -> None:
        by_row: dict[str, list[Draw]] = {}
        for each in trajectories:
            by_row.setdefault(each.row, []).append(Draw(each.reward, each.seconds))
        self._draws = list(by_row.values())
        self._seed = seed
        self.rows = len(self._draws)

    def prompt(self, number: int) -> tuple[int, int]:
        return shuffled_prompt(self._seed, self.rows, number)

    def draw(self, wanted: Try, weight_version: int) -> Draw:
        draws = self._draws[wanted.row]
        chance, _ = uniforms(self._seed, *wanted)
        return draws[int(chance * len(draws))]


def _parsed(path: Path, number: int, line: bytes) -> Recorded:
    try:
        return msgspec.json.decode(line, type=Recorded)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMessage(
            f"line {number} of the trace {path} is not a trajectory: {error}",
            fix='a line has "row", "reward" and "seconds", and may have "member" and "turns"',
        ) from error


def _seconds(timings: Timings) -> float:
    return timings.init_seconds + timings.run_seconds + timings.eval_seconds
