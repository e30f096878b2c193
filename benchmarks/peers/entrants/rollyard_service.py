"""Rollyard: a durable Redis, one orchestrator, an LLM node, two agent servers, and a trainer that
asks for one Batch of all the questions.

The environment is of another package, as its users' are. What is killed is an agent server, and
nobody starts it again.
"""

import os
from functools import partial
from pathlib import Path

from benchmarks.deployment import new_cluster
from benchmarks.peers.entrants import entrant, sums
from chaos.cluster import READY_SECONDS, Cluster
from chaos.settings import HOST
from launch.readiness import wait_until_ready
from rollyard import Client
from rollyard.messages import Criterion, Limits, Sampling

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "examples" / "arithmetic" / "policy"
ENVIRONMENT = "sums"
AGENT_SERVERS = 2
BATCH_SECONDS = 3600.0
"""The driver ends it before."""


def main() -> None:
    options = entrant.parse()
    _install(options.directory / "site")
    with new_cluster(AGENT_SERVERS) as cluster:
        cluster.start_orchestrator(0)
        client = Client(cluster.orchestrator_urls[0], show_progress=False)
        cluster.start(
            "llm-node",
            *("llm_servers", "--port", str(cluster.ports.llm_node), "--node-id", "peers"),
            *("--orchestrator", cluster.orchestrator_urls[0], "--server", options.llm),
            *("--model", str(MODEL)),
        )
        entrant.ready(_start_agent_servers(cluster, client, options))
        run = client.run(
            ({"data_source": ENVIRONMENT, "question": each} for each in range(options.questions)),
            run_id="peers",
            group_size=sums.SAMPLES,
            criterion=Criterion.COMPLETE,
            look_ahead_jobs=max(sums.SAMPLES, options.slots // 8),
            sampling=Sampling(max_response_tokens=256),
            limits=Limits(max_turns=sums.TURNS, max_tokens=8192),
        )
        batch = run.rollout(options.questions, timeout_seconds=BATCH_SECONDS)
        for group in batch.groups:
            for result in group.results:
                assert result.grade is not None
                entrant.finished(int(group.prompt.instance["question"]), result.grade.reward)
        run.ack(batch)
        entrant.done()


def _install(site: Path) -> None:
    """Put a package with the environment on the path of new processes."""
    information = site / "sums-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sums\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[rollyard.environments]\n"
        f"{ENVIRONMENT} = benchmarks.peers.entrants.rollyard_environment:Sums\n"
    )
    os.environ["PYTHONPATH"] = f"{site}:{ROOT}"


def _start_agent_servers(cluster: Cluster, client: Client, options: entrant.Options) -> list[int]:
    """Process ids of the agent servers, which the orchestrator knows."""
    started = [
        cluster.start(
            f"agent-{index}",
            *("agent_server", "--port", str(port), "--server-id", f"agent-{index}"),
            *("--orchestrator", cluster.orchestrator_urls[0], "--llm-server", options.llm),
            *("--model", str(MODEL), "--slots", str(options.slots // AGENT_SERVERS)),
            *("--warm-sandboxes", "0"),
        )
        for index, port in enumerate(cluster.ports.agents)
    ]
    for process, port in zip(started, cluster.ports.agents, strict=True):
        known = partial(_knows, client, f"http://{HOST}:{port}")
        wait_until_ready(process, known, READY_SECONDS)
    return [process.process.pid for process in started]


def _knows(client: Client, url: str) -> bool:
    return url in {server.url for server in client.status().servers}


if __name__ == "__main__":
    main()
