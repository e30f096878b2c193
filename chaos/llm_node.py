"""The control service of LLM servers that are not there: `python -m chaos.llm_node`.

The routes are those of the real one, and so is what it promises of versions. What it serves stands
in a file, from which the agents of a chaos run, whose policy is no model, take it.
"""

import argparse
import threading
from pathlib import Path
from typing import cast

from chaos.settings import HOST
from llm_servers.app import create_app
from llm_servers.node import Node
from rollyard import Client
from rollyard.errors import Conflict
from rollyard.messages import Accepted, LLMNode, WeightReport, WeightUpdate, WeightVersion
from serving import logs
from serving.gunicorn import Bind, Service, serve

VERSION = "weights"


class NoopNode:
    """What the routes ask of a node, with nothing to load."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        self.waiting_for = "the orchestrator to register this node"

    def update_weights(self, wanted: WeightUpdate) -> WeightReport:
        """Versions rise; an update whose answer was lost may be repeated."""
        with self._one_at_a_time:
            served = served_version(self._directory)
            if wanted.version < served:
                raise Conflict(f"weight version {wanted.version} does not rise from {served}")
            fresh = self._directory / f"{VERSION}.new"
            fresh.write_text(str(wanted.version))
            fresh.replace(self._directory / VERSION)
        return WeightReport(version=wanted.version, servers=(), paused_seconds=0.0)

    def weight_version(self) -> WeightVersion:
        return WeightVersion(version=served_version(self._directory))


def served_version(directory: Path) -> int:
    """0 until the first update."""
    path = directory / VERSION
    return int(path.read_text()) if path.exists() else 0


def start(bind: Bind, orchestrator: str, directory: Path) -> Service:
    logs.configure("llm-node")
    node = NoopNode(directory)
    myself = LLMNode(node_id="llm-node", url=bind.url, servers=(), model="none")

    def register() -> None:
        Client(orchestrator).call(lambda peer: peer.post("/llm-nodes", myself, Accepted))
        node.waiting_for = ""

    threading.Thread(target=register, name="register", daemon=True).start()
    return Service(create_app(cast(Node, node)), lambda: None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.llm_node", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--orchestrator", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    flags = parser.parse_args()
    bind = Bind(host=HOST, port=flags.port, threads=16)
    serve(lambda: start(bind, flags.orchestrator, flags.directory), bind)


if __name__ == "__main__":
    main()
