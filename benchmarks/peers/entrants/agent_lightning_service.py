"""Agent Lightning: its gateway, and its controller with the local runner, which runs each episode
in a process of its own.

What is killed is one of these processes. A rollout that failed is complete as its own trainer takes
it (`agentlightning/verl/rollout_adapter.py`), with 0.0 for the reward that it lacks. The runner's
interval is shorter than the ten seconds that it has by default.
"""

import sys
import time
from typing import Any

import httpx
from agentlightning.client import AgentLightningSyncClient

from benchmarks.peers.entrants import entrant, starting

AGENT = "benchmarks.peers.entrants.agent_lightning_agent:LightningAgent"
WORKER = "_run_local_reconciler_worker"
MODEL = "policy"
POLL_SECONDS = 0.5
LOST_REWARD = 0.0
"""The trainer's `reward_fillna_value`."""


def main() -> None:
    options = entrant.parse()
    port = starting.free_port()
    url = f"http://127.0.0.1:{port}"
    server = _command("server", f"port={port}", f"default_proxy.model_name={MODEL}")
    controller = _command(
        "controller",
        "runner_type=local",
        f"agl_server.url={url}",
        f"local_runner.maximum_size={options.slots}",
        f"local_runner.poll_interval={POLL_SECONDS}",
    )
    with starting.process(server, options.directory), AgentLightningSyncClient(base_url=url) as api:
        starting.wait_until(lambda: _answers(url))
        model = {"model": MODEL, "endpoint": f"{options.llm}/v1"}
        api.post_with_retry("/api/models", json=[model])
        with starting.process(controller, options.directory):
            entrant.ready(named=WORKER)
            _play(api, options.tasks)
            entrant.done()


def _play(api: AgentLightningSyncClient, tasks: list[int]) -> None:
    local = {"agent_class": AGENT, "env_map": {"QUESTION": "input.question"}}
    asked = [{"input": {"question": question}, "config": {"local": local}} for question in tasks]
    created = api.post_with_retry("/api/rollouts", json=asked).json()
    questions = {rollout["rollout_id"]: rollout["input"]["question"] for rollout in created}
    after = 0
    while after < len(tasks):
        page = api.get("/api/rollouts/terminal", params={"after": after}).json()
        for ended in page["items"]:
            events = api.get(f"/api/rollouts/{ended['rollout_id']}/events").json()
            entrant.finished(questions[ended["rollout_id"]], _reward(events))
        after = page["next_after"]
        time.sleep(POLL_SECONDS)


def _reward(events: list[dict[str, Any]]) -> float:
    rewards = [each["data"]["value"] for each in events if each["event_type"] == "reward"]
    return float(rewards[-1]) if rewards else LOST_REWARD


def _answers(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/healthz").is_success)
    except httpx.TransportError:
        return False


def _command(part: str, *settings: str) -> list[str]:
    # Hydra keeps its notes elsewhere than in a directory for each start.
    notes = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled")
    return [sys.executable, "-m", f"agentlightning.{part}", *settings, *notes]


if __name__ == "__main__":
    main()
