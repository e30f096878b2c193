"""A policy on some Slots, simulated for one seed. All cases of a seed have the same draws."""

from functools import lru_cache

import msgspec

from rollyard.messages import NO_BOUND
from simulator.bounds import Bounds, bounds
from simulator.dataset import World, WorldSettings
from simulator.figures import Figures, figures
from simulator.plan import Plan
from simulator.policies import policy
from simulator.training import simulate

PLAN = Plan(slots=256)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    slots: int = 256
    max_staleness: int = 1
    drift: float = 0.0

    @property
    def name(self) -> str:
        age = "any age" if self.max_staleness == NO_BOUND else f"age <= {self.max_staleness}"
        drift = f", drift {self.drift:g}" if self.drift else ""
        return f"{self.policy}, {age}, W={self.slots}{drift}"


BATCHWISE = Case(policy="batchwise")
RESTART = Case(policy="restart")
RESUME = Case(policy="resume")
ORACLE = Case(policy="history-staged", max_staleness=NO_BOUND)
ORACLE_ALPHA1 = Case(policy="history-staged", slots=128)
BLIND = (Case(policy="resume", slots=64), Case(policy="resume", slots=128), RESUME)
DRIFTS = (0.2, 0.5)
PLAIN_DRIFT = {drift: Case(policy="resume", slots=128, drift=drift) for drift in DRIFTS}
HISTORY_DRIFT = {drift: Case(policy="history", slots=128, drift=drift) for drift in DRIFTS}
CASES = (
    BATCHWISE,
    Case(policy="discard"),
    RESTART,
    RESUME,
    Case(policy="launch-order"),
    Case(policy="resume", max_staleness=NO_BOUND),
    Case(policy="staged", max_staleness=NO_BOUND),
    Case(policy="history", max_staleness=NO_BOUND),
    ORACLE,
    Case(policy="history-staged"),
    *BLIND[:2],
    Case(policy="history", slots=128),
    ORACLE_ALPHA1,
    *PLAIN_DRIFT.values(),
    *HISTORY_DRIFT.values(),
)


def measure(case: Case, seed: int) -> Figures:
    chosen = policy(case.policy, max_staleness=case.max_staleness)
    plan = msgspec.structs.replace(PLAN, slots=case.slots)
    outcome = simulate(World(seed, WorldSettings(drift=case.drift)), chosen, plan)
    return figures(outcome, unbiased(seed))


@lru_cache(maxsize=4)
def unbiased(seed: int) -> Bounds:
    return bounds(World(seed), policy("resume").settings, PLAN)
