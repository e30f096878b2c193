"""Work on a fleet: the attempts on its Slots, each at an LLM server or on the CPUs of its node.

- A trajectory takes its Turns one after the other: a response, then tools.
- An attempt that is parked goes on where it was; as it was parked for new weights, what caches had
  of it is computed anew. So it is after a move to another LLM server.
"""

from dataclasses import dataclass
from functools import partial

from orchestrator.ids import group_and_member
from simulator.dataset import Draw
from simulator.fleet.llm_servers import SimulatedLLM, SimulatedLLMs
from simulator.fleet.settings import SimulatedFleet, SimulatedNode
from simulator.fleet.sharing import SharedResource, Use
from simulator.work import Occupation, Timer


@dataclass(slots=True, eq=False)
class Journey:
    """How far an attempt has come."""

    node: str
    group: str
    trajectory: str
    turns: int
    """Number of Turns to come, with the one that it is in."""
    cpu_seconds: float
    """CPU time of the tools in each Turn."""
    prefix_tokens: int
    tokens_left: float
    """Tokens that are left of the response; 0 while tools run."""
    cpu_seconds_left: float
    """What is left of the tools' CPU time in this Turn."""
    cached_on: str = ""
    """Name of the LLM server that has its prefix."""
    llm: SimulatedLLM | None = None
    """The LLM server that samples for it now."""
    use: Use | None = None


class Machines:
    """Owns the fleet's CPUs and LLM servers, and the journeys of all attempts."""

    def __init__(self, fleet: SimulatedFleet, clock: Timer) -> None:
        self._clock = clock
        self._work = fleet.work
        self._nodes = fleet.node_of_slots()
        self.llms = SimulatedLLMs(fleet, clock)
        self.cpus = {node.name: self._cpus_of(node) for node in fleet.nodes}
        self._journeys: dict[Occupation, Journey] = {}
        for name, seconds in fleet.lost_llm_servers.items():
            clock.at(seconds, partial(self._lose, self.llms.all[name]))

    def go(self, attempt: Occupation) -> None:
        if attempt not in self._journeys:
            self._journeys[attempt] = self._journey(attempt)
        self._go_on(attempt)

    def stop(self, attempt: Occupation, *, over: bool) -> None:
        journey = self._journeys[attempt]
        self._leave(journey)
        if over:
            del self._journeys[attempt]
            self.llms.release(journey.node, journey.trajectory)
        else:
            journey.cached_on = ""
            self.llms.forget_prompts()

    def _cpus_of(self, node: SimulatedNode) -> SharedResource:
        most = self._work.cpus

        def pace(tools: int) -> float:
            return node.speed * min(most, node.cpus / tools)

        return SharedResource(self._clock, pace)

    def _journey(self, attempt: Occupation) -> Journey:
        work = self._work
        turns = work.turns(attempt.seconds)
        # Evenly, so that the lengths of the dataset are kept and not rounded to whole Turns.
        share = attempt.seconds / (turns * work.turn_seconds)
        return Journey(
            node=self._nodes[attempt.slot].name,
            group=group_and_member(attempt.job)[0],
            trajectory=attempt.job,
            turns=turns,
            cpu_seconds=work.cpu_seconds * share,
            prefix_tokens=work.prompt_tokens,
            tokens_left=float(work.response_tokens),
            cpu_seconds_left=work.cpu_seconds * share,
        )

    def _go_on(self, attempt: Occupation) -> None:
        """Use what the attempt needs next; it ends where that is nothing."""
        journey = self._journeys[attempt]
        if not journey.turns:
            self._end(attempt)
        elif journey.tokens_left:
            self._ask(attempt, journey)
        else:
            cpus = self.cpus[journey.node]
            left = journey.cpu_seconds_left
            journey.use = cpus.begin(left, lambda: self._tools_done(attempt, journey))

    def _ask(self, attempt: Occupation, journey: Journey) -> None:
        llm = journey.llm = self.llms.server_of(journey.node, journey.trajectory, journey.group)
        new = journey.prefix_tokens
        if journey.cached_on == llm.name:
            new = self._work.observation_tokens
        elif journey.group in llm.prompts:
            new -= self._work.prompt_tokens
        llm.prompts.add(journey.group)
        journey.cached_on = llm.name
        journey.use = llm.sample(journey.tokens_left, new, lambda: self._answered(attempt, journey))

    def _answered(self, attempt: Occupation, journey: Journey) -> None:
        journey.tokens_left, journey.llm, journey.use = 0.0, None, None
        self._go_on(attempt)

    def _tools_done(self, attempt: Occupation, journey: Journey) -> None:
        journey.turns -= 1
        journey.prefix_tokens += self._work.response_tokens + self._work.observation_tokens
        journey.tokens_left = float(self._work.response_tokens)
        journey.cpu_seconds_left, journey.use = journey.cpu_seconds, None
        self._go_on(attempt)

    def _leave(self, journey: Journey) -> None:
        """Stop what is under way, and note what is left of it."""
        if journey.use is None:
            return
        if journey.llm is not None:
            left = journey.llm.shared.stop(journey.use)
            # The prompt comes first: what is left beyond the response was for that.
            journey.tokens_left = min(left, journey.tokens_left)
        else:
            journey.cpu_seconds_left = self.cpus[journey.node].stop(journey.use)
        journey.llm = journey.use = None

    def _end(self, attempt: Occupation) -> None:
        now = self._clock.now
        attempt.ends_at = now
        attempt.draw = Draw(attempt.draw.reward, attempt.ran + now - attempt.since)
        self._clock.at(now, attempt)

    def _lose(self, lost: SimulatedLLM) -> None:
        lost.lost = True
        for attempt, journey in self._journeys.items():
            if journey.llm is lost:
                self._leave(journey)
                self._go_on(attempt)
