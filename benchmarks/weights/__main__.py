"""`python -m benchmarks.weights`: updates of the weights with responses under way, on vLLM and on
stand-ins, and what the proxy adds to a response.

The proxy and the LLM server itself are asked the same at the same time. The last line of stdout is
one JSON object.
"""

import argparse
import math
import os
from collections.abc import Callable
from statistics import median

from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_most, figures, say
from benchmarks.weights.flight import FLIGHTS
from benchmarks.weights.proxied import CLIENTS, TOKEN_SECONDS, TOKENS, Added, added
from benchmarks.weights.update import SCRIPTED, SCRIPTED_ADAPTED, Updated, real, update
from launch.vllm_environment import DEFAULT_LLM_PYTHON


class WeightRounds:
    """Measurements of all rounds."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self.whole: list[Added] = []
        self.streamed: list[Added] = []
        self.updates: list[Updated] = []
        """On stand-ins, two behind one proxy."""
        self.real: list[Updated] = []
        """On a vLLM."""
        self.adapted: list[Updated] = []
        """On stand-ins, by an adapter."""
        self.real_adapted: list[Updated] = []
        """On a vLLM, by an adapter."""
        self.loads: list[float] = []
        """Load averages of the machine, one a round."""

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("whole answers", lambda: self._added(self.whole, streams=False)),
            ("streams", lambda: self._added(self.streamed, streams=True)),
            ("an update", lambda: self.updates.append(update(SCRIPTED))),
            ("an adapter", lambda: self.adapted.append(update(SCRIPTED_ADAPTED))),
        ]

    def steps_of_vllm(self) -> list[tuple[str, Callable[[], None]]]:
        plain, adapted = real(DEFAULT_LLM_PYTHON), real(DEFAULT_LLM_PYTHON, adapted=True)
        return [
            ("an update of vLLM", lambda: self.real.append(update(plain))),
            ("an adapter for vLLM", lambda: self.real_adapted.append(update(adapted))),
        ]

    def _added(self, rounds: list[Added], *, streams: bool) -> None:
        rounds.append(added(streams=streams, clients=self._clients))
        self.loads.append(os.getloadavg()[0])


def goals(rounds: WeightRounds) -> list[Goal]:
    updates = rounds.updates + rounds.real + rounds.adapted + rounds.real_adapted
    pauses = [each.pause_beyond_load_seconds for each in updates]
    return [
        at_most("lost", sum(each.lost for each in updates), 0),
        at_most("wrong_versions", sum(each.wrong_versions for each in updates), 0),
        at_most("gap", max(each.gap for each in updates), 1e-3),
        at_most("pause_beyond_load_seconds", max(pauses), 0.5),
        at_most("proxy_added_p50_ms", median(each.p50 for each in rounds.whole), 2),
    ]


def measured(rounds: WeightRounds) -> dict[str, object]:
    return {
        "flights": FLIGHTS,
        "updates_of_stand_ins": [_told(each) for each in rounds.updates],
        "updates_of_vllm": [_told(each) for each in rounds.real],
        "adapters_of_stand_ins": [_told(each) for each in rounds.adapted],
        "adapters_of_vllm": [_told(each) for each in rounds.real_adapted],
        "clients": CLIENTS,
        "tokens": TOKENS,
        "token_milliseconds": TOKEN_SECONDS * 1e3,
        "whole": _figures(rounds.whole),
        "streamed": _figures(rounds.streamed),
        "load_averages": [round(load, 1) for load in rounds.loads],
    }


def _told(each: Updated) -> dict[str, object]:
    """What is worth knowing of one update; of `crossed` responses, tokens of both versions came."""
    return {
        "servers": len(each.report.servers),
        "crossed": each.crossed,
        "gap": each.gap,
        "paused_seconds": round(each.report.paused_seconds, 3),
        "load_seconds": round(each.report.load_seconds, 3),
        "silent_seconds": round(each.silent_seconds, 3),
    }


def _figures(rounds: list[Added]) -> dict[str, object]:
    return {
        f"{name}_ms": figures([getattr(each, name) for each in rounds], 2)
        for name in ("p50", "p90", "first_token_p50", "straight_p50", "cpu")
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.weights", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="clients, times this")
    parser.add_argument("--without-vllm", action="store_true", help="update stand-ins alone")
    options = parser.parse_args()
    machine, rounds = this_machine(), WeightRounds(max(2, math.ceil(CLIENTS * options.scale)))
    steps = rounds.steps() * options.rounds
    if not options.without_vllm:
        steps += rounds.steps_of_vllm()
    with progress_bar() as bar:
        task = bar.add_task("", total=len(steps))
        for name, step in steps:
            bar.update(task, description=name)
            step()
            bar.advance(task)
    say("weights", machine, goals(rounds), measured(rounds))


if __name__ == "__main__":
    main()
