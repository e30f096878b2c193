"""Checks of the servers of a deployment, which are all asked at once from this machine."""

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import requests

from agent_server.status import Status
from launch.doctor.check import Check, check
from rollyard import codec
from rollyard.errors import InvalidMessage, RollyardError
from rollyard.http import DirectSession, Peer
from rollyard.messages import Failure, FleetStatus, LLMNode, ServerState, WeightVersion
from rollyard.trust import refusal

ASK_SECONDS = 5.0
"""Time for an answer: an LLM node asks its LLM servers first."""
SILENT_SECONDS = 10.0
MAX_AT_ONCE = 64


class Way(NamedTuple):
    """How servers are called."""

    token: str = ""
    ca_file: Path | None = None


NO_WAY = Way()


def server_checks(status: FleetStatus, way: Way = NO_WAY) -> list[Check]:
    silent = [s.server_id for s in status.servers if s.condition.seen_seconds_ago > SILENT_SECONDS]
    held = [
        f"{server.server_id} is {server.condition.state}"
        for server in status.servers
        if server.condition.state is not ServerState.SERVING
    ]
    lost = [
        f"{server.server_id}: {server.condition.lost.reason}"
        for server in status.servers
        if server.condition.lost.count
    ]
    urls = {server.server_id: server.url for server in status.servers}
    nodes = {node.node_id: node.url for node in status.llm_nodes if node.url}
    return [
        check(
            "agent servers",
            bool(status.servers),
            f"{len(status.servers)} registered",
            "start one; its log says what it waits for",
        ),
        _all_ready("agent servers ready", urls, way),
        check("heartbeats", not silent, _listed(silent, "silent"), "look at the logs of these"),
        check("servers serving", not held, _listed(held, "held back"), "`rollyard why <server>`"),
        _sandboxes(urls, way),
        check("slots", not lost, _listed(lost, "lost some"), "start these agent servers again"),
        check(
            "LLM nodes",
            bool(status.llm_nodes),
            f"{len(status.llm_nodes)} registered",
            "start one; its log says how far its LLM servers are",
        ),
        _all_ready("LLM nodes ready", nodes, way),
        _weights(nodes, status.llm_nodes, way),
    ]


def _all_ready(name: str, urls: dict[str, str], way: Way) -> Check:
    reasons = _asked(urls, lambda url: _why_not_ready(url, way))
    broken = [f"{server}: {why}" for server, why in reasons.items() if why]
    return check(name, not broken, _listed(broken, "not ready"), "look at the logs of these")


def _asked(urls: dict[str, str], ask: Callable[[str], str]) -> dict[str, str]:
    """The answer of each server, all of which are asked at once."""
    with ThreadPoolExecutor(MAX_AT_ONCE) as threads:
        return dict(zip(urls, threads.map(ask, urls.values()), strict=True))


def _why_not_ready(url: str, way: Way) -> str:
    try:
        with DirectSession(ca_file=way.ca_file) as session:
            answer = session.get(url + "/readyz", timeout=ASK_SECONDS)
    except requests.RequestException as error:
        refused = refusal(error, url)
        return f"no answer at {url} ({refused.reason if refused else type(error).__name__})"
    if answer.status_code == 200:
        return ""
    with contextlib.suppress(InvalidMessage):
        return codec.decode_json(answer.content, Failure).message
    return f"{url} answers {answer.status_code}"


def _sandboxes(urls: dict[str, str], way: Way) -> Check:
    unsafe = [
        f"{server}: {what}"
        for server, what in _asked(urls, lambda url: _unsafe(url, way)).items()
        if what
    ]
    return check(
        "sandboxes",
        not unsafe,
        _listed(unsafe, "unsafe"),
        "start these agent servers without --sandbox unsafe-local",
    )


def _unsafe(url: str, way: Way) -> str:
    peer = _peer(url, "agent server", way)
    with contextlib.closing(peer), contextlib.suppress(RollyardError):
        return peer.get("/status", Status).unsafe
    return ""


def _weights(urls: dict[str, str], nodes: Sequence[LLMNode], way: Way) -> Check:
    versions = _asked(urls, lambda url: _weight_version(url, way))
    different = len(set(versions.values())) > 1 or "" in versions.values()
    troubles = [f"{node.node_id}: {node.trouble}" for node in nodes if node.trouble]
    finding = ", ".join(f"{node} has {version or 'none'}" for node, version in versions.items())
    return check(
        "weight versions",
        not different and not troubles,
        "; ".join((finding, *troubles)) if finding else "no LLM node to ask",
        "publish the weights again: a node that restarted serves its first checkpoint",
    )


def _weight_version(url: str, way: Way) -> str:
    peer = _peer(url, "LLM node", way)
    with contextlib.closing(peer), contextlib.suppress(RollyardError):
        return str(peer.get("/weights", WeightVersion).version)
    return ""


def _peer(url: str, name: str, way: Way) -> Peer:
    return Peer(url, name=name, token=way.token, timeout_seconds=ASK_SECONDS, ca_file=way.ca_file)


def _listed(names: list[str], what: str) -> str:
    return f"{len(names)} {what}: {', '.join(names)}" if names else f"none {what}"
