"""`rollyard simulate`, as people and as scripts use it."""

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from launch.commands import app
from rollyard.errors import LaunchError, RollyardError
from simulator.trace import Recorded, write_trace

QUICK = ["simulate", "--slots", "16", "--batch", "2", "--steps", "3", "--group-size", "4"]


def invoke(*options: str) -> str:
    result = CliRunner().invoke(app, [*QUICK, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_several_numbers_of_slots_are_compared() -> None:
    said = json.loads(invoke("--slots", "32", "--json"))
    slow, fast = said["figures"]
    assert [slow["slots"], fast["slots"]] == [16, 32]
    assert slow["seconds_per_step"] > fast["seconds_per_step"]


def test_people_see_a_table() -> None:
    assert "a step" in invoke()


def test_the_same_seed_says_the_same() -> None:
    assert invoke("--json", "--seed", "3") == invoke("--json", "--seed", "3")


def test_a_trace_takes_the_place_of_the_made_up_dataset(tmp_path: Path) -> None:
    rewards = (0.0, 1.0)
    write_trace(
        tmp_path / "trace.jsonl",
        [Recorded(row="a", reward=reward, seconds=10.0) for reward in rewards],
    )
    said = json.loads(invoke("--trace", str(tmp_path / "trace.jsonl"), "--json"))
    assert said["figures"][0]["seconds_per_step"] % 10 == 0


def test_fleets_are_compared_with_how_busy_they_are() -> None:
    few, many = "gpu:1/8/8", "gpu:1/8/8 cpu[1-2]:0/8/8"
    command = ["simulate", *QUICK[3:], "--fleet", few, "--fleet", many, "--seeds", "2", "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    said = json.loads(result.stdout)
    assert [each["nodes"] for each in said["fleets"]] == [few, many]
    first, second = (each["figures"] for each in said["fleets"])
    assert (first["nodes"], first["slots"], first["llm_servers"]) == (1, 8, 1)
    assert (second["nodes"], second["slots"], second["llm_servers"]) == (3, 24, 1)
    assert first["seconds_per_step"] > second["seconds_per_step"]
    assert said["fleets"][0]["pull_over_static"] is None


def test_people_see_what_dealing_jobs_out_would_cost() -> None:
    command = ["simulate", *QUICK[3:], "--fleet", "gpu:1/8/8 cpu:0/8/2", "--dealt", "40"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    header, row = result.stdout.splitlines()
    assert header.split("\t")[-2:] == ["at once", "dealt out"]
    assert float(row.split("\t")[-1].removeprefix("x ")) > 1.5


def test_a_fleet_works_as_a_trace_does(tmp_path: Path) -> None:
    write_trace(
        tmp_path / "trace.jsonl",
        [Recorded(row="a", reward=each, seconds=10.0, turns=2) for each in (0.0, 1.0)],
    )
    command = [*QUICK[:1], *QUICK[3:], "--fleet", "gpu:1/8/8", "--turn-cpu", "4", "--json"]
    result = CliRunner().invoke(
        app, [*command, "--trace", str(tmp_path / "trace.jsonl")], catch_exceptions=False
    )
    (fleet,) = json.loads(result.stdout)["fleets"]
    # two turns of 4 s of CPU time, and of responses, for each of two rounds of eight members
    assert 8 < fleet["figures"]["seconds_per_step"] < 50


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--fleet", "gpu:8"], "'gpu:8' names no nodes of a simulation"),
        (["--fleet", "gpu:8/1/1/1.2.3"], "names no nodes of a simulation"),
        (["--fleet", " "], "at least one node"),
        (["--fleet", "gpu:8/0"], "cpus of gpu must be at least 1"),
        (["--fleet", "a:1/1 a:1/1"], "named twice"),
        (["--fleet", "a:1/1", "--tensor-parallel", "2"], "no node has the 2 GPUs"),
        (["--fleet", "a:1/1", "--slots", "8"], "has the slots of its nodes"),
        (["--fleet", "a:1/1", "--svg", "x.svg"], "are not drawn"),
    ],
)
def test_a_fleet_that_cannot_be_simulated_is_refused(options: list[str], problem: str) -> None:
    with pytest.raises(RollyardError, match=problem):
        CliRunner().invoke(app, ["simulate", *options], catch_exceptions=False)


def test_the_commands_of_the_page_on_sizing_run_as_they_are_written(tmp_path: Path) -> None:
    """On their datasets for a step, and one after the other as a reader would."""
    page = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text()
    commands = [shlex.split(line) for line in page.splitlines() if line.startswith("    rollyard")]
    write_trace(
        tmp_path / "trace.jsonl",
        [Recorded(row="a", reward=each, seconds=10.0, turns=2) for each in (0.0, 1.0)],
    )
    assert len(commands) >= 4
    short = ["--steps", "1", "--seeds", "1", "--batch", "1", "--group-size", "2", "--json"]
    for _, *command in commands:
        if "--dealt" in command:
            command += ["--dealt", "40"]
        given = [str(tmp_path / each) if each == "trace.jsonl" else each for each in command]
        result = CliRunner().invoke(app, [*given, *short], catch_exceptions=False)
        assert len(json.loads(result.stdout)["fleets"]) == command.count("--fleet")


def test_the_two_timelines_are_drawn(tmp_path: Path) -> None:
    invoke("--svg", str(tmp_path / "timelines.svg"))
    assert ElementTree.parse(tmp_path / "timelines.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("options", [["--policy", "magic"], ["--steps", "2", "--warm-up", "2"]])
def test_what_cannot_be_simulated_is_refused_with_a_way_out(options: list[str]) -> None:
    with pytest.raises(RollyardError) as refused:
        CliRunner().invoke(app, [*QUICK, *options], catch_exceptions=False)
    assert refused.value.fix


def test_too_many_slots_are_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="too thin"):
        CliRunner().invoke(
            app, ["simulate", "--slots", "65", "--svg", str(tmp_path / "x")], catch_exceptions=False
        )


def test_a_picture_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot write the picture to"):
        CliRunner().invoke(
            app, [*QUICK, "--svg", str(tmp_path / "no" / "x.svg")], catch_exceptions=False
        )
