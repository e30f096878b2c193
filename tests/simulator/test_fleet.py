"""Attempts on the CPUs and LLM servers of a fleet, and what production's placement makes of it."""

from dataclasses import dataclass

import msgspec
import pytest

from rollyard.errors import InvalidMessage, LLMUnavailable
from simulator.clock import Clock
from simulator.dataset import Draw, Try, World
from simulator.fleet.figures import FleetFigures, simulate_fleet
from simulator.fleet.machines import Machines
from simulator.fleet.settings import AgentWork, LLMPace, SimulatedFleet, SimulatedNode
from simulator.fleet.split import pull_over_static
from simulator.plan import Plan
from simulator.policies import policy
from simulator.work import Occupation, Timer

# Turns of 1 s of CPU and 10 tokens, in a dataset whose trajectories have one Turn a second.
WORK = AgentWork(
    longest_seconds=10.0,
    max_turns=10,
    cpu_seconds=1.0,
    response_tokens=10,
    observation_tokens=10,
    prompt_tokens=100,
)
# 10 tokens a second for one trajectory alone, and a prompt as fast as ten responses.
PACE = LLMPace(step_seconds=0.1, trajectory_seconds=0.0, prompt_tokens_in_one=10.0)
ONE_GPU = SimulatedNode(name="gpu", gpus=1, cpus=2, slots=4)
TWO_GPUS = SimulatedNode(name="gpu", gpus=2, cpus=2, slots=4)


@dataclass
class Running:
    """Attempts on a fleet, without queues."""

    fleet: SimulatedFleet

    def __post_init__(self) -> None:
        self.clock: Timer = Clock()
        self.machines = Machines(self.fleet, self.clock)
        self.ended: dict[str, float] = {}

    def begin(self, *jobs: str, seconds: float = 1.0) -> list[Occupation]:
        begun = [
            Occupation(job, slot, 0, Draw(1.0, seconds), seconds, fails=False, since=self.clock.now)
            for slot, job in enumerate(jobs)
        ]
        for attempt in begun:
            self.machines.go(attempt)
        return begun

    def run(self) -> dict[str, float]:
        """Job -> time of its end."""
        while (happening := self.clock.next()) is not None:
            if isinstance(happening, Occupation):
                assert happening.draw.seconds == self.clock.now - happening.since
                self.ended[happening.job] = self.clock.now
                self.machines.stop(happening, over=True)
            else:
                happening()
        return self.ended


def one_node(node: SimulatedNode = ONE_GPU, **changed: object) -> SimulatedFleet:
    fleet = SimulatedFleet(nodes=(node,), pace=PACE, work=WORK)
    return msgspec.structs.replace(fleet, **changed)


def test_a_turn_computes_its_prompt_samples_and_then_uses_a_cpu() -> None:
    running = Running(one_node())
    running.begin("r/g/0")
    # prompt: 100 tokens at 100/s; response: 10 tokens at 10/s; tools: 1 s
    assert running.run() == pytest.approx({"r/g/0": 3.0})


def test_a_later_turn_computes_only_what_its_server_does_not_have() -> None:
    running = Running(one_node())
    running.begin("r/g/0", seconds=2.0)
    assert running.run() == pytest.approx({"r/g/0": 3.0 + 0.1 + 2.0})


def test_members_of_a_group_have_their_prompt_computed_once() -> None:
    running = Running(one_node())
    running.begin("r/g/0", "r/g/1")
    running.run()
    assert running.machines.llms.all["gpu/llm-0"].computed_tokens == 100


def test_tools_beyond_the_cpus_of_a_node_slow_each_other_down() -> None:
    running = Running(one_node(msgspec.structs.replace(ONE_GPU, cpus=1)))
    running.begin("r/a/0", "r/b/0")
    # two seconds for prompts and responses, and then two of tools that share a CPU
    assert running.run() == pytest.approx({"r/a/0": 4.0, "r/b/0": 4.0})


def test_a_slower_node_takes_longer_for_tools_alone() -> None:
    running = Running(one_node(msgspec.structs.replace(ONE_GPU, speed=0.5)))
    running.begin("r/g/0")
    assert running.run() == pytest.approx({"r/g/0": 4.0})


def test_a_parked_attempt_goes_on_where_it_was_with_its_prefix_computed_anew() -> None:
    running = Running(one_node())
    (attempt,) = running.begin("r/g/0")

    def park() -> None:
        running.machines.stop(attempt, over=False)
        attempt.ran, attempt.since = 1.5, 10.0

    running.clock.at(1.5, park)  # in the middle of the response
    running.clock.at(10.0, lambda: running.machines.go(attempt))
    while (happening := running.clock.next()) is not None and not isinstance(happening, Occupation):
        happening()
    # the prompt again, the other half of the response, the tools
    assert running.clock.now == pytest.approx(10.0 + 1.0 + 0.5 + 1.0)
    assert attempt.draw.seconds == pytest.approx(4.0)


def test_trajectories_of_a_lost_server_move_and_have_their_prefix_computed_there() -> None:
    def computed(lost: dict[str, float]) -> int:
        running = Running(one_node(TWO_GPUS, lost_llm_servers=lost))
        running.begin("r/a/0", "r/b/0", "r/c/0", "r/d/0", seconds=8.0)
        assert len(running.run()) == 4
        return sum(llm.computed_tokens for llm in running.machines.llms.all.values())

    moved = [computed({name: 5.0}) - computed({}) for name in ("gpu/llm-0", "gpu/llm-1")]
    assert all(each >= 100 for each in moved)


def test_a_node_without_any_llm_server_left_is_an_error() -> None:
    running = Running(one_node(lost_llm_servers={"gpu/llm-0": 0.5}))
    running.begin("r/g/0")
    with pytest.raises(LLMUnavailable, match="all LLM servers that gpu asks are lost"):
        running.run()


def test_servers_on_gpu_nodes_ask_their_own_llm_servers_and_helpers_share_all() -> None:
    helper = SimulatedNode(name="cpu", cpus=2, slots=2)
    other = SimulatedNode(name="other", gpus=1, cpus=2, slots=2)
    machines = Machines(one_node(nodes=(ONE_GPU, other, helper)), Clock())
    asked = {
        node: {machines.llms.server_of(node, str(i), str(i)).name for i in range(8)}
        for node in ("gpu", "other", "cpu")
    }
    assert asked == {
        "gpu": {"gpu/llm-0"},
        "other": {"other/llm-0"},
        "cpu": {"gpu/llm-0", "other/llm-0"},
    }


def test_slots_are_offered_one_of_each_node_at_a_time() -> None:
    small = SimulatedNode(name="small", cpus=1, slots=1)
    names = [node.name for node in one_node(nodes=(ONE_GPU, small)).node_of_slots()]
    assert names == ["gpu", "small", "gpu", "gpu", "gpu"]


@pytest.mark.parametrize("changed", [{"cpus": 0}, {"slots": 0}, {"speed": 0.0}])
def test_a_node_that_cannot_work_is_refused(changed: dict[str, float]) -> None:
    with pytest.raises(InvalidMessage, match="of gpu must be"):
        msgspec.structs.replace(ONE_GPU, **changed)


# The published deployment: docs/sizing.md


def published(helpers: int) -> SimulatedFleet:
    gpus = [SimulatedNode(name=f"gpu{i}", gpus=8, cpus=128) for i in range(4)]
    cpus = [SimulatedNode(name=f"cpu{i}", cpus=64) for i in range(helpers)]
    return SimulatedFleet(nodes=(*gpus, *cpus))


def minutes(helpers: int) -> float:
    """Mean time of a step, on two datasets."""
    found: list[FleetFigures] = [
        simulate_fleet(
            World(seed), policy("resume"), Plan(slots=1, steps=6, warm_up=2), published(helpers)
        )
        for seed in range(2)
    ]
    return sum(each.seconds_per_step for each in found) / len(found) / 60


def test_fifteen_cpu_nodes_make_28_minutes_11_as_published() -> None:
    assert minutes(0) == pytest.approx(28, rel=0.1)
    assert minutes(15) == pytest.approx(11, rel=0.1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_free_servers_that_pull_jobs_beat_an_even_split_before_the_step(seed: int) -> None:
    """19 servers, five of them at half speed, have 368 Slots in proportion to their CPUs."""
    gpus = [SimulatedNode(name=f"gpu{i}", gpus=8, cpus=128, slots=32) for i in range(4)]
    cpus = [SimulatedNode(name=f"cpu{i}", cpus=64, slots=16) for i in range(15)]
    slow = [msgspec.structs.replace(each, speed=0.5) for each in (*gpus[:1], *cpus[:4])]
    world = World(seed)
    groups = [
        [world.draw(Try(*world.prompt(prompt), member, 0), 0) for member in range(8)]
        for prompt in range(500)
    ]
    fleet = SimulatedFleet(nodes=(*slow, *gpus[1:], *cpus[4:]))
    assert pull_over_static(fleet, groups) >= 1.6
