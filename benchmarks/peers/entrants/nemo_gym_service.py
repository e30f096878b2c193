"""NeMo-Gym: its simple agent, its vLLM model server and a resources server, as `gym env start`
starts them, and its collection of rollouts.

What is killed is the agent server, of which there is one process: nobody starts it again. An
episode whose request fails would end the collection with it; here it is counted alone. The servers
share one environment, which they would otherwise make, each its own, from a registry.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import requests
import yaml
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient

from benchmarks.peers.entrants import entrant, starting, sums

HERE = Path(__file__).parent
ENVIRONMENT = Path(sys.prefix)
AGENT, MODEL, RESOURCES = "sums_agent", "policy_model", "sums"
KINDS = {
    RESOURCES: "resources_servers/sums",
    AGENT: "responses_api_agents/simple_agent",
    MODEL: "responses_api_models/vllm_model",
}
"""Server -> its directory, as NeMo-Gym lays them out."""
TOOL = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": sums.PARAMETERS,
    "strict": True,
}


def main() -> None:
    options = entrant.parse()
    head = BaseServerConfig(host="127.0.0.1", port=starting.free_port())
    _lay_out(options, head)
    binaries = ENVIRONMENT / "bin"
    command = [str(binaries / "gym"), "env", "start", "+config_paths=[sums.yaml]"]
    path = f"{binaries}:{os.environ['PATH']}"
    with starting.process(command, options.directory, PATH=path) as pid:
        starting.wait_until(lambda: _all_answer(head))
        entrant.ready(_processes_of_the_agent(pid))
        asyncio.run(_play(options, head))
        entrant.done()


async def _play(options: entrant.Options, head: BaseServerConfig) -> None:
    def row(question: int) -> dict[str, Any]:
        asked = {"role": "user", "content": sums.text(question)}
        params = {"input": [asked], "tools": [TOOL], "max_output_tokens": 256}
        return {
            "question": question,
            "responses_create_params": params,
            "agent_ref": {"name": AGENT},
        }

    playing = RolloutCollectionHelper().run_examples(
        [row(question) for question in options.tasks],
        head,
        semaphore=asyncio.Semaphore(options.slots),
    )
    for each in playing:
        try:
            played, result = await each
        except Exception as error:
            entrant.failed(-1, repr(error))
        else:
            entrant.finished(played["question"], float(result["reward"]))


def _lay_out(options: entrant.Options, head: BaseServerConfig) -> None:
    """Write the resources server and the configuration, and let each server find its environment,
    which is ours."""
    resources = options.directory / KINDS[RESOURCES]
    shutil.copytree(HERE / "nemo_gym_sums", resources)
    (resources / "requirements.txt").touch()
    environments = options.directory / "environments"
    for directory in KINDS.values():
        (environments / directory).mkdir(parents=True)
        (environments / directory / ".venv").symlink_to(ENVIRONMENT)
    reference = {"type": "resources_servers", "name": RESOURCES}
    model = {
        "entrypoint": "app.py",
        "base_url": f"{options.llm}/v1",
        "api_key": "none",
        "model": "policy",
        "return_token_id_information": False,
        "uses_reasoning_parser": False,
    }
    agent = {
        "entrypoint": "app.py",
        "resources_server": reference,
        "model_server": {"type": "responses_api_models", "name": MODEL},
    }
    config = {
        "head_server": head.model_dump(exclude_none=True),
        "skip_venv_if_present": True,
        "uv_venv_dir": str(environments),
        RESOURCES: {"resources_servers": {"sums": {"entrypoint": "app.py", "domain": "agent"}}},
        AGENT: {"responses_api_agents": {"simple_agent": agent}},
        MODEL: {"responses_api_models": {"vllm_model": model}},
    }
    (options.directory / "sums.yaml").write_text(yaml.safe_dump(config))


def _all_answer(head: BaseServerConfig) -> bool:
    try:
        client = ServerClient.load_from_global_config(head)
        return all(client.poll_for_status(name) == "success" for name in KINDS)
    except (ValueError, requests.RequestException):
        return False


def _processes_of_the_agent(gym: int) -> list[int]:
    directory = KINDS[AGENT]
    return [
        each.pid
        for each in psutil.Process(gym).children(recursive=True)
        if each.cwd().endswith(directory) and each.name().startswith("python")
    ]


if __name__ == "__main__":
    main()
