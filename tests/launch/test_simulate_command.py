"""`rollyard simulate`, as people and as scripts use it."""

import json
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
