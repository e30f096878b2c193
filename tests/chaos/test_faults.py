"""The seed decides every fault."""

import itertools
from collections import Counter
from pathlib import Path

from chaos.faults import Kind, agent_faults, service_faults
from chaos.settings import ChaosSettings


def settings(seed: int) -> ChaosSettings:
    return ChaosSettings(directory=Path(), seed=seed, jobs=10_000)


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    def drawn(seed: int) -> object:
        agents = agent_faults(settings(seed), Kind.KILL_AGENT, 2.0)
        return list(itertools.islice(agents, 50)), service_faults(settings(seed))

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_run_has_the_kills_that_it_must_have_before_its_end() -> None:
    for seed in range(50):
        faults = service_faults(settings(seed))
        kinds = Counter(fault.kind for fault in faults)
        assert kinds[Kind.KILL_ORCHESTRATOR] >= 5
        assert kinds[Kind.KILL_REDIS] >= 5
        progress = [fault.at_accepted for fault in faults]
        assert progress == sorted(progress)
        assert progress[-1] <= 9_000
