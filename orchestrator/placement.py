"""Which servers of a fleet run on which of its nodes, as a pure function of these.

- One agent server on every node, and N = GPUs / tensor-parallel size LLM servers on every node that
  has GPUs enough. Where no node has GPUs, each has one LLM server on its CPUs.
- Agent servers on nodes with LLM servers ask these alone.
- Agent servers on the other nodes, the helpers, share all LLM servers of their model evenly:
  neither the numbers of LLM servers that they ask nor the numbers of helpers that ask one differ by
  more than one.
- Planned again, as many helpers as evenness allows go on with the LLM servers that they asked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from rollyard.errors import LaunchError
from rollyard.messages import Message


class FleetNode(Message, frozen=True, kw_only=True):
    """One machine."""

    name: str
    gpus: int = 0
    model: str = "policy"
    """Name of the model that its LLM servers serve, or that its agents ask."""


class PlacedLLM(Message, frozen=True, kw_only=True):
    """One LLM server."""

    name: str
    node: str
    model: str
    gpus: tuple[int, ...]
    """Numbers of its GPUs on the node; none if it computes on the CPUs."""


class PlacedAgents(Message, frozen=True, kw_only=True):
    """One agent server."""

    node: str
    model: str
    llm_servers: tuple[str, ...]
    """Names of the LLM servers that it asks."""


class Placement(Message, frozen=True, kw_only=True):
    """The servers of a fleet."""

    llm_servers: tuple[PlacedLLM, ...]
    agent_servers: tuple[PlacedAgents, ...]


def place(
    nodes: Sequence[FleetNode], *, tensor_parallel: int = 1, before: Placement | None = None
) -> Placement:
    """The servers on these nodes; LLM servers of `tensor_parallel` GPUs each. `before` is what the
    fleet had until now. Raises `LaunchError`."""
    _check(nodes, tensor_parallel)
    on_cpus = not any(node.gpus for node in nodes)
    llms = [server for node in nodes for server in _llm_servers(node, tensor_parallel, on_cpus)]
    asked: dict[str, list[str]] = {}
    for server in llms:
        asked.setdefault(server.node, []).append(server.name)
    helpers = [node for node in nodes if node.name not in asked]
    agents_before = before.agent_servers if before is not None else ()
    asked_before = {each.node: each.llm_servers for each in agents_before}
    for model in dict.fromkeys(node.model for node in helpers):
        sharing = [node.name for node in helpers if node.model == model]
        servers = [server.name for server in llms if server.model == model]
        if not servers:
            raise LaunchError(
                f"{sharing[0]} is to ask LLM servers of {model}, and no node has any",
                fix=f"give it one of: {', '.join(sorted({each.model for each in llms}))}",
            )
        asked |= _shared(sharing, servers, asked_before)
    agents = (
        PlacedAgents(node=node.name, model=node.model, llm_servers=tuple(asked[node.name]))
        for node in nodes
    )
    return Placement(llm_servers=tuple(llms), agent_servers=tuple(agents))


def agents_alone(nodes: Sequence[str]) -> Placement:
    """One agent server on each of these nodes, where others run the LLM servers. Raises
    `LaunchError`."""
    _check([FleetNode(name=name) for name in nodes], tensor_parallel=1)
    agents = (PlacedAgents(node=name, model=FleetNode.model, llm_servers=()) for name in nodes)
    return Placement(llm_servers=(), agent_servers=tuple(agents))


def _check(nodes: Sequence[FleetNode], tensor_parallel: int) -> None:
    names = [node.name for node in nodes]
    if not names:
        raise LaunchError("a fleet needs at least one node")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise LaunchError(f"a node is named twice: {' '.join(twice)}")
    if tensor_parallel < 1:
        raise LaunchError(f"an LLM server needs at least 1 GPU, got {tensor_parallel}")
    most = max(nodes, key=lambda node: node.gpus)
    if 0 < most.gpus < tensor_parallel:
        raise LaunchError(
            f"no node has the {tensor_parallel} GPUs of one LLM server; the most are the "
            f"{most.gpus} of {most.name}",
            fix="split the model over fewer GPUs",
        )


def _llm_servers(node: FleetNode, tensor_parallel: int, on_cpus: bool) -> list[PlacedLLM]:
    """The LLM servers on this node."""
    ends = range(tensor_parallel, node.gpus + 1, tensor_parallel)
    shares = [range(0)] if on_cpus else [range(end - tensor_parallel, end) for end in ends]
    return [
        PlacedLLM(name=f"{node.name}/llm-{i}", node=node.name, model=node.model, gpus=tuple(gpus))
        for i, gpus in enumerate(shares)
    ]


def _shared(
    helpers: Sequence[str], servers: Sequence[str], before: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Helper -> the servers that it asks. Each of whichever are more has one of the others."""
    if len(helpers) >= len(servers):
        dealt = _dealt(helpers, servers, before)
        return {helper: [server] for helper, server in dealt.items()}
    asked_by = {
        server: [helper for helper in helpers if server in before.get(helper, ())]
        for server in servers
    }
    asked: dict[str, list[str]] = {helper: [] for helper in helpers}
    for server, helper in _dealt(servers, helpers, asked_by).items():
        asked[helper].append(server)
    return asked


def _dealt(
    many: Sequence[str], few: Sequence[str], before: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """One of the few for each of the many, evenly; one that it had `before` as far as possible."""
    least, larger = divmod(len(many), len(few))
    chosen: dict[str, str] = {}
    numbers = Counter(dict.fromkeys(few, 0))
    had = [(each, old) for each in many for old in before.get(each, ()) if old in numbers]
    for share in (least, least + 1):  # at first only what the smallest of all even shares holds
        for each, old in had:
            fits = numbers[old] < share and (share == least or larger > 0)
            if each not in chosen and fits:
                chosen[each] = old
                numbers[old] += 1
                larger -= share > least
    for each in many:
        if each not in chosen:
            chosen[each] = min(few, key=lambda one: numbers[one])
            numbers[chosen[each]] += 1
    return chosen
