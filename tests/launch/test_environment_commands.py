"""`rollyard env`: environments are made, proved and tried without a deployment."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from launch.commands import app
from rollyard.errors import RollyardError
from tests.llm_fixtures import POLICY, StartScriptedLLM

SUMS = [{"data_source": "arithmetic", "question": f"{n}*7", "answer": str(7 * n)} for n in range(6)]
UNPROVEN = """
from agent_server.environments.protocol import Observation


class Unproven:
    def start(self, prompt, sandbox):
        self.prompt = prompt
        return ()

    def step(self, response):
        return Observation(done=True)

    def solve(self):
        if self.prompt.instance["is"] == "endless":
            while True:
                pass

    def grade(self):
        return {"generous": 1.0}.get(self.prompt.instance["is"], 0.0)
"""


def ask(*options: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["env", *options], input=typed, catch_exceptions=False)


def ask_json(*options: str) -> Any:
    return json.loads(ask(*options, "--json").stdout)


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def sums(tmp_path: Path) -> str:
    return written(tmp_path / "sums.jsonl", SUMS)


def test_the_environments_that_are_installed_are_listed_with_what_they_lack_here() -> None:
    found = {each["name"]: each for each in ask_json("list")["environments"]}
    assert found["arithmetic"] == {
        "name": "arithmetic",
        "from": "rollyard",
        "about": "Arithmetic questions with a calculator and one number as the answer.",
        "lacking": [],
    }
    assert found["textarena"]["about"] == "Games of TextArena for one player."
    assert found["swe"]["about"].endswith("is graded by tests that it has not seen.")
    assert "--repositories DIR" in found["swe"]["lacking"][0]


def test_a_new_environment_passes_its_test_and_proves_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ask("new", "my_sums", "--directory", str(tmp_path))
    assert made.exit_code == 0
    monkeypatch.chdir(tmp_path / "my_sums")
    assert len(Path("my_sums.py").read_text().splitlines()) <= 40
    tested = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])
    assert tested.returncode == 0
    proved = ask("validate", "my_sums", "rows.jsonl", "--from", "my_sums:MySums")
    assert (proved.exit_code, "16 rows, 0 with a problem" in proved.stdout) == (0, True)


@pytest.mark.parametrize("name", ["My-Sums", "7up", "a b", "../up", "class", "json"])
def test_a_name_that_no_module_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RollyardError, match="cannot name an environment"):
        ask("new", name, "--directory", str(tmp_path))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "sums").mkdir()
    with pytest.raises(RollyardError, match="exists already"):
        ask("new", "sums", "--directory", str(tmp_path))


def test_rows_are_proved_in_real_sandboxes(sums: str) -> None:
    found = ask_json("validate", "arithmetic", sums)
    assert (found["rows"], found["problems"]) == (6, 0)


def test_a_row_that_proves_nothing_is_named_with_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unproven.py").write_text(UNPROVEN)
    monkeypatch.chdir(tmp_path)
    rows = written(tmp_path / "rows.jsonl", [{"is": each} for each in ("generous", "unsolved")])
    validated = ask("validate", "unproven", rows, "--from", "unproven:Unproven", "--json")
    verdicts = {each["row"]: each["problem"] for each in json.loads(validated.stdout)["verdicts"]}
    assert validated.exit_code == 1
    assert verdicts["row-0"].startswith("doing nothing gets 1")
    assert verdicts["row-1"].startswith("the solution gets 0")


def test_a_row_whose_episode_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unproven.py").write_text(UNPROVEN)
    monkeypatch.chdir(tmp_path)
    rows = written(tmp_path / "rows.jsonl", [{"is": "endless"}])
    options = ("--from", "unproven:Unproven", "--row-seconds", "1")
    found = ask_json("validate", "unproven", rows, *options)
    assert [each["problem"] for each in found["verdicts"]] == ["gold: the environment was killed"]


def test_a_dataset_without_a_row_of_the_environment_is_no_proof(sums: str) -> None:
    with pytest.raises(
        RollyardError, match=r"no row of .* 'gym': its rows are of arithmetic; name"
    ):
        ask("validate", "gym", sums)


def test_a_script_plays_an_episode_turn_by_turn(sums: str, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("<tool_call>5*7</tool_call>\n---\n35\n")
    played = ask("try", "arithmetic", sums, "--row", "5", "--script", str(script))
    assert played.exit_code == 0
    assert "tool:\n35\nassistant:\n35\nreward 1" in played.stdout


def test_a_script_that_ends_early_cuts_the_episode_off(sums: str, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("<tool_call>5*7</tool_call>")
    found = ask_json("try", "arithmetic", sums, "--row", "5", "--script", str(script))
    assert (found["truncated"], found["grade"]["reward"]) == (True, 0.0)


def test_a_person_plays_an_episode(sums: str) -> None:
    played = ask("try", "arithmetic", sums, "--row", "2", typed="<tool_call>2*7</tool_call>\n\n14")
    assert "tool:\n14\n" in played.stdout
    assert "reward 1" in played.stdout


def test_the_served_model_plays_an_episode(sums: str, start_scripted_llm: StartScriptedLLM) -> None:
    url = start_scripted_llm()
    options = ("--model", str(POLICY), "--llm-server", url)
    found = ask_json("try", "arithmetic", sums, "--row", "3", *options)
    assert [each["role"] for each in found["messages"]][:2] == ["user", "assistant"]
    assert found["grade"]["reward"] in (0.0, 1.0)


def test_what_cannot_be_tried_is_refused_with_a_way_out(sums: str) -> None:
    for options, reason in (
        (("try", "nothing", sums), "no environment 'nothing'; name one of"),
        (("try", "arithmetics", sums), r"'arithmetics' \(did you mean 'arithmetic'\?\)"),
        (("try", "arithmetic", sums, "--row", "6"), "has no row 6, it has rows 0 to 5"),
        (("try", "arithmetic", sums, "--script", "no.txt"), "cannot read the script"),
        (("validate", "arithmetic", "no.jsonl"), "no dataset at"),
    ):
        with pytest.raises(RollyardError, match=reason):
            ask(*options)
