"""The keeper of a fleet, before an orchestrator and agent servers that are played here."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from flask import Flask, Response

from launch.fleet import FLEET, FleetPlan, FleetSettings, read_fleet
from launch.fleet_keeper import LOOK_SECONDS, FleetKeeper
from launch.free_ports import free_range
from launch.roll_call import ABSENT_SECONDS
from orchestrator.placement import FleetNode, place
from rollyard.messages import (
    Accepted,
    AgentServerStatus,
    FleetStatus,
    LLMNode,
    LLMServersToAsk,
    ServerCondition,
)
from rollyard.tokens import make_token_file
from serving.api import reply
from tests.serving_threads import read, served

NODES = {"gpu1": "127.0.0.1", "gpu2": "127.0.0.2", "cpu1": "127.0.0.3", "cpu2": "127.0.0.4"}
HOSTS = ("gpu1", "gpu2")


class Fleet:
    """A keeper, and all whom it calls; `silence` is how long each node was silent, in seconds."""

    def __init__(self, directory: Path, parts: ExitStack, *, shared: bool = True) -> None:
        self.directory = directory
        self.silence = dict.fromkeys(NODES, 0.0)
        self.dismissed: list[str] = []
        self.told: dict[str, LLMServersToAsk] = {}
        self.said: list[str] = []
        self.deaf: set[str] = set()
        """Nodes whose agent servers answer with an error."""
        self.away = False
        """Whether the orchestrator is."""
        self._now = 0.0
        plan = self._plan(directory)
        parts.enter_context(served(self._orchestrator(), plan.settings.port, NODES["gpu1"]))
        for node, host in NODES.items():
            parts.enter_context(served(self._agent(node), plan.settings.port + 2, host))
        self._keeper = FleetKeeper(plan, self.said.append, lambda: self._now, shared=shared)
        parts.callback(self._keeper.close)

    def look(self, *silent: str, times: int = 1) -> None:
        """Let time pass from one look to the next, in which these nodes are silent."""
        for _ in range(times):
            self._now += LOOK_SECONDS
            for node in NODES:
                self.silence[node] = self.silence[node] + LOOK_SECONDS if node in silent else 0.0
            self._keeper.look()

    def proxy(self, node: str) -> str:
        return self._keeper.fleet.proxy_url(node)

    @property
    def plan(self) -> FleetPlan:
        return self._keeper.fleet

    def _plan(self, directory: Path) -> FleetPlan:
        settings = FleetSettings(
            model=Path("m"), directory=directory, queues=Path("q"), port=free_range(8).start
        )
        make_token_file(settings.token_file)
        nodes = [FleetNode(name=node, gpus=1 if node in HOSTS else 0) for node in NODES]
        return FleetPlan(settings=settings, placement=place(nodes), addresses=NODES)

    def _orchestrator(self) -> Flask:
        app = Flask("orchestrator")

        @app.get("/status")
        def status() -> Response | tuple[str, int]:
            return ("away", 503) if self.away else reply(self._status())

        @app.post("/llm-nodes/<node>/dismiss")
        def dismiss(node: str) -> Response:
            self.dismissed.append(node)
            return reply(Accepted())

        return app

    def _status(self) -> FleetStatus:
        return FleetStatus(
            runs=(),
            servers=tuple(
                AgentServerStatus(
                    server_id=f"agent-{node}",
                    url=f"http://{NODES[node]}",
                    slots=1,
                    busy_slots=0,
                    environments=(),
                    # The agent server of a host does not speak for its LLM servers.
                    condition=ServerCondition(seen_seconds_ago=0.0 if node in HOSTS else seconds),
                )
                for node, seconds in self.silence.items()
            ),
            llm_nodes=tuple(
                LLMNode(node_id=node, url=f"http://{NODES[node]}", servers=(), model="m")
                for node in HOSTS
                if node not in self.dismissed
            ),
            llm_silence={node: self.silence[node] for node in HOSTS},
        )

    def _agent(self, node: str) -> Flask:
        app = Flask(f"agent-{node}")

        @app.post("/llm-servers")
        def ask() -> Response | tuple[str, int]:
            if node in self.deaf:
                return "not now", 503
            self.told[node] = read(LLMServersToAsk)
            return reply(Accepted())

        return app


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as parts:
        yield Fleet(tmp_path, parts)


UNTIL_AWAY = int(ABSENT_SECONDS / LOOK_SECONDS)


def test_who_asked_a_silent_node_asks_the_others_until_it_is_heard_of_again(fleet: Fleet) -> None:
    fleet.look("gpu2", times=UNTIL_AWAY - 1)
    assert (fleet.told, fleet.dismissed) == ({}, [])
    fleet.look("gpu2")
    one, two = fleet.proxy("gpu1"), fleet.proxy("gpu2")
    assert fleet.told == {"cpu2": LLMServersToAsk(proxies={one: 1}, gone=(two,))}
    assert fleet.dismissed == ["gpu2"]
    assert read_fleet(fleet.directory) == fleet.plan
    fleet.told.clear()
    fleet.look("gpu2", times=3)
    assert (fleet.told, fleet.dismissed) == ({}, ["gpu2"])
    fleet.look()
    assert fleet.told["cpu2"] == LLMServersToAsk(proxies={two: 1})
    assert fleet.plan.absent == ()
    assert "gpu2 is there again" in fleet.said


def test_the_llm_servers_of_a_helper_that_left_are_shared_by_the_others(fleet: Fleet) -> None:
    fleet.look("cpu1", times=UNTIL_AWAY)
    assert fleet.told["cpu2"].proxies.keys() == {fleet.proxy("gpu1"), fleet.proxy("gpu2")}
    assert fleet.dismissed == []


def test_an_agent_server_that_could_not_be_told_is_told_later(fleet: Fleet) -> None:
    fleet.deaf.add("cpu2")
    fleet.look("gpu2", times=UNTIL_AWAY + 2)
    assert fleet.told == {}
    fleet.deaf.clear()
    fleet.look("gpu2")
    assert fleet.told["cpu2"].proxies == {fleet.proxy("gpu1"): 1}


def test_while_the_orchestrator_is_away_nobody_is_given_up(fleet: Fleet) -> None:
    fleet.away = True
    fleet.look(*NODES, times=3 * UNTIL_AWAY)
    fleet.away = False
    fleet.look(*NODES)
    assert (fleet.plan.absent, fleet.told) == ((), {})


def test_where_nodes_share_no_directory_whatever_differs_from_the_first_plan_is_told_again(
    tmp_path: Path,
) -> None:
    """A server that starts again has read the first plan, and does not become ready with it."""
    with ExitStack() as parts:
        fleet = Fleet(tmp_path, parts, shared=False)
        fleet.look()
        assert fleet.told.keys() == NODES.keys()  # whatever an earlier keeper has told them
        fleet.told.clear()
        fleet.look("gpu2", times=UNTIL_AWAY)
        changed = LLMServersToAsk(proxies={fleet.proxy("gpu1"): 1}, gone=(fleet.proxy("gpu2"),))
        for _ in range(2):
            assert fleet.told == {"cpu2": changed}
            fleet.told.clear()
            fleet.look("gpu2", "cpu2")
        fleet.look(times=2)
        fleet.told.clear()
        fleet.look()
        assert fleet.told == {}


def test_a_plan_that_cannot_be_written_is_made_again_at_the_next_look(fleet: Fleet) -> None:
    in_the_way = fleet.directory / FLEET
    in_the_way.mkdir()
    fleet.look("gpu2", times=UNTIL_AWAY)
    assert (fleet.plan.absent, fleet.told) == ((), {})
    assert fleet.said == [f"cannot write the plan to {fleet.directory}: Is a directory"]
    assert not list(fleet.directory.glob(f"{FLEET}.*"))
    in_the_way.rmdir()
    fleet.look("gpu2")
    assert fleet.plan.absent == ("gpu2",)
    assert read_fleet(fleet.directory) == fleet.plan
