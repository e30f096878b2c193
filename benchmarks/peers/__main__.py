"""`python -m benchmarks.peers`: the same episodes by Rollyard and by each peer, in turn.

In each round every service plays all 256 episodes with the machine to itself; then each plays 96
under each fault. A service that does not start, or cannot do a thing, is in the report with the
reason. The last line of stdout is one JSON object.
"""

import argparse
import math
import sys
from collections.abc import Callable
from statistics import median

import msgspec

from benchmarks.machine import this_machine
from benchmarks.peers.match import Disturbance, Match, MatchResult, play
from benchmarks.peers.services import OURS, PEERS, Entrant
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_most, figures, say
from rollyard.errors import LaunchError

QUESTIONS = 32
FAULT_QUESTIONS = 12
SLOTS = 48
"""Episodes at once: the local runner of one peer never looks past its first fifty."""
TOKEN_SECONDS = 0.01
FAULTS = (Disturbance.KILL, Disturbance.OUTAGE)


class Record(msgspec.Struct):
    """What one service has done."""

    undisturbed: list[MatchResult] = msgspec.field(default_factory=list)
    faults: dict[Disturbance, MatchResult] = msgspec.field(default_factory=dict)
    cannot: str = ""
    """Why it did not play at all."""

    def median(self, figure: str) -> float:
        return median(float(getattr(each, figure)) for each in self.undisturbed)


class Matches:
    """All matches of all services."""

    def __init__(self, services: tuple[Entrant, ...], scale: float) -> None:
        self._services = services
        self._scale = scale
        self.records = {service.name: Record() for service in services}

    def steps(self, rounds: int) -> list[tuple[str, Callable[[], None]]]:
        return [
            *(
                (service.name, lambda service=service: self._undisturbed(service))
                for _ in range(rounds)
                for service in self._services
            ),
            *(
                (f"{service.name}: {fault}", lambda s=service, f=fault: self._faulty(s, f))
                for fault in FAULTS
                for service in self._services
            ),
        ]

    def _undisturbed(self, service: Entrant) -> None:
        if played := self._play(service, QUESTIONS, Disturbance.NONE):
            self.records[service.name].undisturbed.append(played)

    def _faulty(self, service: Entrant, fault: Disturbance) -> None:
        if played := self._play(service, FAULT_QUESTIONS, fault):
            self.records[service.name].faults[fault] = played

    def _play(self, service: Entrant, questions: int, fault: Disturbance) -> MatchResult | None:
        record, scaled = self.records[service.name], max(1, math.ceil(questions * self._scale))
        if record.cannot:
            return None
        try:
            return play(service, Match(scaled, SLOTS, TOKEN_SECONDS), fault)
        except LaunchError as error:
            record.cannot = str(error)
            return None


def goals(records: dict[str, Record]) -> list[Goal]:
    """The goals, beside the best of the peers that lost no episode undisturbed."""
    ours = records[OURS.name]
    peers = [
        record
        for name, record in records.items()
        if name != OURS.name and record.undisturbed and not record.median("lost")
    ]
    wall, cost = ours.median("wall_over_ideal"), ours.median("cpu_milliseconds_a_turn")
    return [
        at_most("wall_over_ideal", wall, 1.05),
        at_most("wall_vs_best_peer", wall / _least(peers, "wall_over_ideal"), 1),
        at_most("cpu_per_turn_vs_best_peer", cost / _least(peers, "cpu_milliseconds_a_turn"), 0.5),
        at_most("lost_under_kill", ours.faults[Disturbance.KILL].lost, 0),
        at_most("wrongly_scored_under_outage", ours.faults[Disturbance.OUTAGE].scored_wrongly, 0),
    ]


def _least(peers: list[Record], figure: str) -> float:
    """The figure of the best peer; where none has played, one that nobody is better than."""
    return min((record.median(figure) for record in peers), default=sys.float_info.min)


def measured(records: dict[str, Record]) -> dict[str, object]:
    return {service.name: _told(service, records[service.name]) for service in (OURS, *PEERS)}


def _told(service: Entrant, record: Record) -> dict[str, object]:
    if record.cannot:
        return {"cannot": record.cannot}
    told: dict[str, object] = {
        name: figures([getattr(each, name) for each in record.undisturbed], 3)
        for name in ("wall_over_ideal", "cpu_milliseconds_a_turn", "lost", "scored_wrongly")
    }
    return told | {str(fault): played for fault, played in record.faults.items()} | _note(service)


def _note(service: Entrant) -> dict[str, object]:
    return {"note": service.note} if service.note else {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="numbers of episodes, times this")
    options = parser.parse_args()
    machine, matches = this_machine(), Matches((OURS, *PEERS), options.scale)
    with progress_bar() as bar:
        steps = matches.steps(options.rounds)
        task = bar.add_task("", total=len(steps))
        for name, step in steps:
            bar.update(task, description=name)
            step()
            bar.advance(task)
    say("peers", machine, goals(matches.records), measured(matches.records))


if __name__ == "__main__":
    main()
