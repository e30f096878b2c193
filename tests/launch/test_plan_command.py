"""`rollyard plan`, as people and as scripts use it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from launch.commands import app
from launch.plan_command import parse_nodes
from rollyard.errors import LaunchError


def invoke(*options: str) -> str:
    result = CliRunner().invoke(app, ["plan", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_people_see_what_runs_on_each_node() -> None:
    header, *rows = invoke("gpu[1-2]:8", "cpu1", "cpu2", "--tensor-parallel", "3").splitlines()
    assert header.split("\t") == ["node", "model", "GPUs", "LLM servers on", "agents ask"]
    assert rows[0].split("\t") == ["gpu1", "policy", "8, 2 idle", "0,1,2 3,4,5", "its own"]
    assert rows[2].split("\t") == ["cpu1", "policy", "0", "-", "gpu1/llm-0 gpu2/llm-0"]


def test_a_fleet_without_gpus_serves_on_cpus() -> None:
    assert "a\tpolicy\t0\tCPUs\tits own" in invoke("a", "b")


def test_a_fleet_that_grows_goes_on_from_what_it_was(tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(invoke("gpu:2", "b", "c", "--json"))
    asked = {
        each["node"]: each["llm_servers"]
        for each in json.loads(invoke("gpu:2", "a", "b", "c", "--before", str(before), "--json"))[
            "agent_servers"
        ]
    }
    assert (asked["b"], asked["c"]) == (["gpu/llm-0"], ["gpu/llm-1"])


@pytest.mark.parametrize("text", ["", "not json", "{}", '{"llm_servers": 3}'])
def test_what_is_no_placement_is_refused(text: str, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(text)
    with pytest.raises(LaunchError, match="cannot read a placement from"):
        invoke("a", "--before", str(before))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("gpu[1-3]:8", ["gpu1", "gpu2", "gpu3"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("n[1-2,7]", ["n1", "n2", "n7"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_many_nodes_are_named_at_once(text: str, names: list[str]) -> None:
    assert [node.name for node in parse_nodes(text)] == names


def test_a_node_may_name_its_gpus_and_its_model() -> None:
    (node,) = parse_nodes("a:4:judge")
    assert (node.gpus, node.model) == (4, "judge")
    (node,) = parse_nodes("a:judge")
    assert (node.gpus, node.model) == (0, "judge")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no nodes"),
        ("a:b:c:d", "names no nodes"),
        ("a:4:", "names no nodes"),
        ("a:-1", "names no nodes"),
        ("a:10000", "up to 9999 GPUs"),
        ("a[1-", "names no nodes"),
        ("a[]", "no range of nodes"),
        ("a[3-1]", "no range of 1 to"),
        ("a[1-999999999]", "no range of 1 to"),
    ],
)
def test_what_names_no_nodes_is_refused(text: str, why: str) -> None:
    with pytest.raises(LaunchError, match=why):
        parse_nodes(text)
