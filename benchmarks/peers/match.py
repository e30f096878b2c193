"""One service plays all episodes, undisturbed or under a fault."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.peers.entrants import sums
from benchmarks.peers.llm import LLM
from benchmarks.peers.running import Running
from benchmarks.peers.services import Entrant
from benchmarks.peers.workload import ideal_seconds, write_replies
from rollyard.errors import LaunchError

READY_SECONDS = 300.0
AWAY_SECONDS = 10.0
FAULT_AT = 0.4
"""Part of the ideal time after which a fault comes."""
SPARE_SECONDS = 60.0
"""Time that a service has beyond four times the ideal, before it is ended."""


class Disturbance(StrEnum):
    NONE = "none"
    KILL = "kill"
    """A worker is killed with all that it started."""
    OUTAGE = "outage"
    """The LLM server resets its connections and is away for `AWAY_SECONDS`."""


class Match(msgspec.Struct, frozen=True):
    questions: int
    slots: int
    token_seconds: float

    @property
    def episodes(self) -> int:
        return self.questions * sums.SAMPLES

    @property
    def ideal_seconds(self) -> float:
        return ideal_seconds(self.questions, self.slots, self.token_seconds)


class MatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one match."""

    wall_over_ideal: float
    cpu_milliseconds_a_turn: float | None
    """Processor time of all processes of the service; None where one was killed, with which its own
    is gone."""
    lost: int
    """Episodes without a reward."""
    scored_wrongly: int
    """Episodes with another reward than 1, which each deserves."""
    delivered_again: int
    reason: str = ""
    """Why episodes were lost, as the service or the end of its time says it."""


def play(service: Entrant, workload: Match, fault: Disturbance) -> MatchResult:
    """Let the service play all episodes. Raises `LaunchError` if it does not start."""
    with TemporaryDirectory(prefix="rollyard-bench-") as name:
        directory = Path(name)
        write_replies(directory / "replies.jsonl", workload.questions)
        with (
            LLM(directory, workload.token_seconds) as llm,
            Running(service, _options(workload, llm.url, directory), directory) as running,
        ):
            return _play(running, llm, workload, fault)


def _options(workload: Match, llm: str, directory: Path) -> tuple[str, ...]:
    place = directory / "service"
    place.mkdir()
    return (
        *("--llm", llm, "--questions", str(workload.questions)),
        *("--slots", str(workload.slots), "--directory", str(place)),
    )


def _play(running: Running, llm: LLM, workload: Match, fault: Disturbance) -> MatchResult:
    if (ready := running.line(READY_SECONDS)) is None:
        raise LaunchError(f"{running.name} did not start: {running.last_words()}")
    cpu, began = running.seconds_computed(), time.monotonic()
    ideal = workload.ideal_seconds
    due = _due(fault, began + FAULT_AT * ideal, llm, lambda: running.kill_worker(ready))
    deadline = began + 4 * ideal + SPARE_SECONDS
    rewards: list[tuple[int, float]] = []
    reasons: list[str] = []
    running.begin()
    while (now := time.monotonic()) < deadline:
        if due and now >= due[0][0]:
            due.pop(0)[1]()
            continue
        line = running.line(min(deadline, *(at for at, _ in due)) - now if due else deadline - now)
        if line is not None and line.question is not None:
            if line.reward is None:
                reasons.append(line.failed)
            else:
                rewards.append((line.question, line.reward))
        elif line is not None and line.done:
            break
        elif line is None and running.has_ended():
            reasons.append(f"it ended: {running.last_words()}")
            break
    else:
        reasons.append(f"it was ended after {deadline - began:.0f} s")
    wall = time.monotonic() - began
    spent = (running.seconds_computed() - cpu) / (workload.episodes * sums.TURNS)
    return MatchResult(
        wall_over_ideal=round(wall / ideal, 4),
        cpu_milliseconds_a_turn=None if fault is Disturbance.KILL else round(spent * 1e3, 3),
        **judged(rewards, workload),
        reason=reasons[0] if reasons else "",
    )


def _due(
    fault: Disturbance, at: float, llm: LLM, kill_worker: Callable[[], None]
) -> list[tuple[float, Callable[[], None]]]:
    """What is done to the service, and when."""
    match fault:
        case Disturbance.NONE:
            return []
        case Disturbance.KILL:
            return [(at, kill_worker)]
        case Disturbance.OUTAGE:
            return [(at, llm.kill), (at + AWAY_SECONDS, llm.start)]


def judged(rewards: Sequence[tuple[int, float]], workload: Match) -> dict[str, int]:
    """Counts of what became of the episodes, by the questions and rewards that were delivered."""
    delivered = Counter(question for question, _ in rewards)
    again = sum(max(0, count - sums.SAMPLES) for count in delivered.values())
    return {
        "lost": workload.episodes - (len(rewards) - again),
        "scored_wrongly": sum(reward != 1 for _, reward in rewards),
        "delivered_again": again,
    }
