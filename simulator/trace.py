"""Traces: recorded trajectories, one JSON object per line, and the dataset that they make.

`recorded` takes them from a Batch. Record with the criterion `complete`: by any other one, Groups
that are not effective are missing in the Batches, and so in the trace.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rollyard.codec import learnt
from rollyard.errors import InvalidMessage
from rollyard.messages import Batch, Result, Timings
from simulator.chance import uniforms
from simulator.dataset import Draw, Try, shuffled_prompt


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recorded trajectory."""

    row: str
    """Name of the dataset row."""
    member: int = 0
    reward: float
    seconds: float
    """Time on its Slot."""
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
            turns=_turns(result),
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
            fix="give a file of one JSON object per line, or leave it out",
        ) from error
    trajectories = [_parsed(path, number, line) for number, line in enumerate(lines, 1) if line]
    if not trajectories:
        raise InvalidMessage(f"the trace {path} is empty", fix="record a run with `write_trace`")
    return trajectories


class Trace:
    """A dataset of recorded trajectories: each member is a random one of its row's."""

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
        return msgspec.json.decode(line, type=learnt(Recorded))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMessage(
            f"line {number} of the trace {path} is not a trajectory: {error}",
            fix='a line has "row", "reward" and "seconds", and may have "member" and "turns"',
        ) from error


def _turns(result: Result) -> int:
    sequences = () if result.trajectory is None else result.trajectory.sequences
    return sum(len(sequence.turns) for sequence in sequences)


def _seconds(timings: Timings) -> float:
    return timings.init_seconds + timings.run_seconds + timings.eval_seconds
