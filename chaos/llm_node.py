"""The control service of LLM servers that do not exist: `python -m chaos.llm_node`.

It has the routes of the real one, and keeps its promises about versions. The version that it serves
is in a file, where the agents of a chaos run, whose policy is no model, read it.
"""

import argparse
import threading
from pathlib import Path
from typing import cast

from chaos.settings import HOST
from llm_servers.app import create_app
from llm_servers.node import Node
from llm_servers.presence import NodePresence
from llm_servers.standing import NodeState
from rollyard.errors import Conflict
from rollyard.http import orchestrator_at
from rollyard.messages import LLMNode, WeightReport, WeightUpdate, WeightVersion
from serving import logs
from serving.bind import Bind
from serving.gunicorn import Service, serve

NODE_ID = "llm-node"
VERSION = "weights"
REGISTER_SECONDS = 120.0


class NoopNode:
    """A node for the routes that has nothing to load."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        self.waiting_for = "the orchestrator to register this node"
        self.trouble = ""

    def update_weights(self, wanted: WeightUpdate) -> WeightReport:
        """Serve another version, which must not be lower. An update whose answer was lost may be
        repeated."""
        with self._one_at_a_time:
            served = served_version(self._directory)
            if wanted.version < served:
                raise Conflict(f"weight version {wanted.version} does not rise from {served}")
            fresh = self._directory / f"{VERSION}.new"
            fresh.write_text(str(wanted.version))
            fresh.replace(self._directory / VERSION)
        return WeightReport(version=wanted.version, servers=(), paused_seconds=0.0)

    def obey(self, published: WeightUpdate | None) -> None:
        """Serve the published version, whose update may not have arrived."""
        if published is not None and published.version > served_version(self._directory):
            self.update_weights(published)

    def weight_version(self) -> WeightVersion:
        return WeightVersion(version=served_version(self._directory))

    def state(self) -> NodeState:
        return NodeState(
            node_id=NODE_ID, waiting_for=self.waiting_for, trouble=self.trouble, servers=()
        )


def served_version(directory: Path) -> int:
    """The version that is served, 0 until the first update."""
    path = directory / VERSION
    return int(path.read_text()) if path.exists() else 0


def start(bind: Bind, orchestrator: str, directory: Path) -> Service:
    logs.configure("llm-node")
    node = NoopNode(directory)

    def describe() -> LLMNode:
        version = served_version(directory)
        return LLMNode(
            node_id=NODE_ID,
            url=bind.url,
            servers=(),
            model="none",
            serves=version,
            published=WeightUpdate(path="nothing", version=version) if version else None,
        )

    presence = NodePresence(orchestrator_at(orchestrator), describe, node.obey)

    def register() -> None:
        presence.arrive(REGISTER_SECONDS)
        node.waiting_for = ""
        presence.start()

    threading.Thread(target=register, name="register", daemon=True).start()
    return Service(create_app(cast(Node, node)), presence.close)


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
