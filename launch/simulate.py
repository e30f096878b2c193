"""`rollyard simulate`: estimate the time of a training step without starting anything."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import track

from launch.output import Json, Listing, show
from rollyard.errors import LaunchError
from rollyard.messages import NO_BOUND
from simulator.bounds import bounds
from simulator.dataset import SimulatedDataset, World
from simulator.figures import Figures, figures
from simulator.plan import Plan
from simulator.policies import NAMES, SamplingPolicy, policy
from simulator.trace import Recorded, Trace, read_trace

if TYPE_CHECKING:
    from simulator.timeline import Timeline

MAX_DRAWN_SLOTS = 64
DRAWN_STEPS = 3


Slots = Annotated[
    list[int] | None,
    typer.Option(min=1, help="Concurrent jobs; repeat it to compare.  [default: 256]"),
]
GroupSize = Annotated[int, typer.Option(help="Rollouts per prompt.", min=2)]
BatchSize = Annotated[int, typer.Option(help="Effective groups per step.", min=1)]
PolicyName = Annotated[str, typer.Option("--policy", help=f"One of {', '.join(NAMES)}.")]
Staleness = Annotated[
    int, typer.Option(help="Maximum age of a token in weight versions; -1 for no bound.", min=-1)
]
Steps = Annotated[int, typer.Option(help="Number of steps to simulate.", min=1)]
WarmUp = Annotated[
    int | None, typer.Option(help="First steps, not reported.  [default: a third]", min=0)
]
Seed = Annotated[int, typer.Option(help="Seed of the dataset and of all draws.")]
Seeds = Annotated[
    int, typer.Option(help="With --fleet: number of datasets to take the mean of.", min=1)
]
Fleets = Annotated[
    list[str] | None,
    typer.Option(
        "--fleet",
        metavar="'NODE:GPUS/CPUS[/SLOTS[/SPEED]]...'",
        help="Nodes to run on, such as 'gpu[1-4]:8/128 cpu[01-15]:0/64', in place of slots alone; "
        "repeat it to compare.  [default slots of a node: 64]",
    ),
]
TurnCPU = Annotated[
    float | None,
    typer.Option(help="With --fleet: CPU seconds of a turn.  [default: 59]", min=0.001),
]
TensorParallel = Annotated[
    int, typer.Option(help="With --fleet: number of GPUs of each LLM server.", min=1)
]
Dealt = Annotated[
    int,
    typer.Option(
        metavar="JOBS",
        help="With --fleet: compare also how long so many jobs take if each server is dealt an "
        "equal number before.",
        min=0,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(help="Recorded trajectories, in place of a software-engineering dataset."),
]
Picture = Annotated[
    Path | None,
    typer.Option(help="Draw the slots over time to this file, next to batch-by-batch sampling."),
]


def simulate_command(
    slots: Slots = None,
    group_size: GroupSize = 8,
    batch: BatchSize = 32,
    policy_name: PolicyName = "resume",
    max_staleness: Staleness = 1,
    steps: Steps = 24,
    warm_up: WarmUp = None,
    seed: Seed = 0,
    trace: TraceFile = None,
    svg: Picture = None,
    fleet: Fleets = None,
    seeds: Seeds = 1,
    turn_cpu: TurnCPU = None,
    tensor_parallel: TensorParallel = 1,
    dealt: Dealt = 0,
    json: Json = False,
) -> None:
    """Estimate the time of a training step, with the production sampler on a virtual clock."""
    staleness = NO_BOUND if max_staleness < 0 else max_staleness
    chosen = policy(policy_name, group_size=group_size, max_staleness=staleness)
    recorded = () if trace is None else tuple(read_trace(trace))
    warm = steps // 3 if warm_up is None else warm_up
    plan = Plan(slots=1, requested_batch_size=batch, steps=steps, warm_up=warm)
    simulated = {
        "seed": seed,
        "group_size": group_size,
        "requested_batch_size": batch,
        "steps": steps,
        "warm_up": warm,
        "max_staleness": staleness,
    }
    if fleet:
        _check_fleet_alone(slots, svg)
        # With it come the queues, which no other command has to wait for.
        from launch.simulate_fleet import FleetQuestion, fleet_answer

        asked = FleetQuestion(fleet, recorded, turn_cpu, tensor_parallel, dealt)
        several = [_dataset(recorded, each) for each in range(seed, seed + seeds)]
        found, shown = fleet_answer(asked, several, chosen, plan)
    else:
        dataset = _dataset(recorded, seed)
        plans = [msgspec.structs.replace(plan, slots=each) for each in slots or [256]]
        if svg is not None:
            _draw(svg, dataset, chosen, plans[0])
        figures = _figures(dataset, chosen, plans)
        found, shown = {"figures": figures}, _listing(figures)
    show({**simulated, **found}, [shown], json=json)


def _dataset(recorded: tuple[Recorded, ...], seed: int) -> SimulatedDataset:
    return Trace(recorded, seed) if recorded else World(seed)


def _check_fleet_alone(slots: list[int] | None, svg: Path | None) -> None:
    if slots:
        raise LaunchError(
            "a fleet has the slots of its nodes", fix="name them there, as in cpu1:0/64/32"
        )
    if svg is not None:
        raise LaunchError("the slots of a fleet are not drawn", fix="draw with --slots alone")


def _figures(
    dataset: SimulatedDataset, chosen: SamplingPolicy, plans: list[Plan]
) -> tuple[Figures, ...]:
    # With it come the queues, which no other command has to wait for.
    from simulator.training import simulate

    reference = bounds(dataset, chosen.settings, plans[0])
    console = Console(stderr=True)
    return tuple(
        figures(simulate(dataset, chosen, plan), reference)
        for plan in track(plans, "simulating", console=console)
    )


def _listing(found: tuple[Figures, ...]) -> Listing:
    fates = ("useful", "filtered", "cancelled", "idle")
    columns = (
        "slots",
        "a step",
        "x blind",
        " / ".join(fates) + " %",
        "prompts",
        "long",
        "mean",
        "oldest",
    )
    shown = Listing(*columns)
    for each in found:
        shown.add(
            str(each.slots),
            lasting(each.seconds_per_step),
            f"{each.over_blind:.2f}",
            " / ".join(f"{100 * getattr(each, fate):.0f}" for fate in fates),
            f"{each.prompts_per_batch:.0f}",
            f"{each.long_share:.1%}",
            f"{each.mean_ratio:.2f}",
            str(each.oldest),
        )
    return shown


def lasting(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.1f} s"


def _draw(path: Path, dataset: SimulatedDataset, chosen: SamplingPolicy, plan: Plan) -> None:
    """Draw the first steps of the chosen policy, and of batch-by-batch sampling."""
    if plan.slots > MAX_DRAWN_SLOTS:
        raise LaunchError(
            f"the lines of {plan.slots} slots would be too thin to be seen",
            fix=f"draw with at most {MAX_DRAWN_SLOTS}, and a --batch that fits them",
        )
    from simulator.timeline import drawn

    short = msgspec.structs.replace(plan, steps=min(plan.steps, DRAWN_STEPS), warm_up=0)
    group_size = chosen.settings.group_size
    policies = [policy("batchwise", group_size=group_size), chosen]
    picture = drawn([_timeline(dataset, each, short) for each in policies])
    try:
        path.write_text(picture)
    except OSError as error:
        raise LaunchError(
            f"cannot write the picture to {path}: {error.strerror}",
            fix="name a file in a directory that exists and is yours with --svg",
        ) from error


def _timeline(dataset: SimulatedDataset, chosen: SamplingPolicy, plan: Plan) -> "Timeline":
    from simulator.timeline import Recorder, timeline
    from simulator.training import simulate

    recorder = Recorder()
    return timeline(chosen.name, simulate(dataset, chosen, plan, recorder), recorder)
