"""`python -m benchmarks.agents`: sandboxes, commands, many conversations at once, and rewards.

The last line of stdout is one JSON object.
"""

import argparse
import math
from statistics import median

import msgspec

from benchmarks.agents import conversations, rewards, sandboxes
from benchmarks.agents.conversations import Conversations, Held
from benchmarks.agents.rewards import RewardFigures
from benchmarks.agents.sandboxes import SandboxTimes
from benchmarks.machine import this_machine
from benchmarks.progress import progress_bar
from benchmarks.report import Goal, at_most, say

STARTS = 200
COMMANDS = 2000
AGENTS = 256
TURNS = 10
LLM_SECONDS = 3.0
"""Mean time of an answer. The agents' turns then come at a rate that two cores keep up with."""
HELD_JOBS = 1024


class Measured(msgspec.Struct):
    sandboxes: SandboxTimes
    conversations: Conversations
    held: Held
    rewards: RewardFigures


def goals(measured: Measured) -> list[Goal]:
    times, talks = measured.sandboxes, measured.conversations
    return [
        at_most("sandbox_pooled_p50_ms", median(times.pooled), 10),
        at_most("sandbox_cold_p50_ms", median(times.cold), 25),
        at_most("bash_command_p50_ms", median(times.bash), 1),
        at_most("agents_cpu_ms_a_turn", talks.cpu_milliseconds_a_turn, 3),
        at_most("agents_added_p50_ms", talks.added_milliseconds["p50"], 5),
        at_most("held_1024_jobs_mib", measured.held.mib, 300),
        *rewards.goals(measured.rewards),
    ]


def figures(measured: Measured) -> dict[str, object]:
    return {
        "sandbox_ms": sandboxes.summary(measured.sandboxes),
        "conversations": measured.conversations,
        "held": measured.held,
        "rewards": rewards.summary(measured.rewards),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.agents", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="numbers of samples, times this")
    options = parser.parse_args()
    scale, machine = options.scale, this_machine()
    with progress_bar() as bar:
        task = bar.add_task("sandboxes", total=3)
        times = sandboxes.measure(_scaled(STARTS, scale), _scaled(COMMANDS, scale))
        bar.update(task, advance=1, description=f"{AGENTS} agents")
        talks = conversations.measure(_scaled(AGENTS, scale), TURNS, LLM_SECONDS)
        bar.update(task, advance=1, description=f"{HELD_JOBS} jobs held")
        held = conversations.hold(_scaled(HELD_JOBS, scale), sandboxes=True)
        bar.advance(task)
        measured = Measured(times, talks, held, rewards.measure(bar))
    say("agents", machine, goals(measured), figures(measured))


def _scaled(number: int, scale: float) -> int:
    return max(8, math.ceil(number * scale))


if __name__ == "__main__":
    main()
