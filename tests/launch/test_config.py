"""`rollyard.toml`, the environment above it and the command line above both."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from launch.commands import app
from launch.config import CONFIG, commands_of, config_first, read_config
from rollyard.codec import learnt
from rollyard.errors import LaunchError

FILE = """
directory = "yard"

[up]
slots = 8
llm = "scripted"
llm-servers = 2
tag = ["gpu", "big"]
vllm-options = ["--max-num-seqs", "128"]
prorl = true

[env.try]
max_turns = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of settings in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / CONFIG
    path.write_text(FILE)
    return path


def rollyard(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def shown(*arguments: str) -> dict[str, tuple[Any, str]]:
    """Setting of `up` -> its value and where that is from."""
    answer = rollyard("config", "show", "up", *arguments, "--json")
    assert answer.exit_code == 0, answer.output
    settings = json.loads(answer.stdout)["settings"]
    return {each["key"]: (each["value"], each["origin"]) for each in settings}


def test_the_command_line_is_above_the_environment_and_that_above_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLYARD_UP_SLOTS", "9")
    monkeypatch.setenv("ROLLYARD_UP_LLM_SERVERS", "3")
    found = shown("--slots", "10")
    assert found["slots"] == (10, "the command line")
    assert found["llm-servers"] == (3, "the variable ROLLYARD_UP_LLM_SERVERS")
    assert found["llm"] == ("scripted", CONFIG)
    assert found["agent-servers"] == (2, "default")


def test_values_of_every_kind_come_from_the_file(file: Path) -> None:
    found = {key: value for key, (value, origin) in shown().items() if origin == CONFIG}
    assert found == {
        "directory": "yard",
        "slots": 8,
        "llm": "scripted",
        "llm-servers": 2,
        "tag": ["gpu", "big"],
        "vllm-options": ["--max-num-seqs", "128"],
        "prorl": True,
    }


def test_a_file_elsewhere_is_named_wherever_in_the_command_line(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[up]\nslots = 5\n")
    answer = rollyard("--config", str(other), "config", "show", "--json")
    (setting,) = json.loads(answer.stdout)["settings"]
    assert (setting["value"], setting["origin"]) == (5, str(other))
    monkeypatch.setenv("ROLLYARD_CONFIG", str(other))
    assert shown()["slots"] == (5, str(other))
    assert config_first(["up", "--slots", "3", "--config", "f", "x"]) == [
        *("--config", "f", "up", "--slots", "3", "x")
    ]
    assert config_first(["up", "--config=f"]) == ["--config=f", "up"]
    assert config_first(["up", "--", "--config", "f"]) == ["up", "--", "--config", "f"]


def test_without_a_command_all_is_shown_that_is_not_at_its_default(file: Path) -> None:
    lines = rollyard("config", "show").stdout.splitlines()
    assert lines[0] == "command\tsetting\tvalue\tfrom"
    assert f"up\ttag\tgpu big\t{CONFIG}" in lines
    assert f"down\tdirectory\tyard\t{CONFIG}" in lines
    assert not [line for line in lines if "default" in line]


def test_what_commands_of_a_group_have_in_common_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / CONFIG
    path.write_text(
        'directory = "yard"\n[slurm]\ndirectory = "job"\ngpu-nodes = 4\n'
        "[slurm.render]\ngpu_nodes = 8\n[llm]\ntensor-parallel = 2\n"
    )
    values = read_config(path, commands_of(app))
    submit, render = values["slurm"]["submit"], values["slurm"]["render"]
    assert (submit["gpu_nodes"], render["gpu_nodes"]) == (4, 8)
    assert {each["directory"] for each in values["slurm"].values()} == {"job"}
    assert values["up"] == {"directory": "yard"}
    assert values["llm"] == {"tensor_parallel": 2, "directory": "yard"}


def test_a_key_that_is_a_command_too_is_an_option_unless_it_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / CONFIG
    path.write_text('llm = "scripted"\n')
    values = read_config(path, commands_of(app))
    assert values["up"] == values["llm"] == values["demo"] == {"llm": "scripted"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[slurm]\nslot = 3", "there is no setting slot in [slurm]; did you mean slots?"),
        ("[slurm]\nsubmit = 3", "slurm submit is a command; write a table, [slurm submit]"),
        ("[up]\nslot = 3", "there is no setting slot in [up]; did you mean slots?"),
        ("[upp]\nslots = 3", "there is no setting upp; did you mean up?"),
        ("slotss = 3", "there is no setting slotss; did you mean slots?"),
        ("[env.tri]", "there is no setting tri in [env]; did you mean try?"),
        ("[up]\nslots = 'many'", "the value of slots does not fit `rollyard up`: Expected `int`"),
        ("[up]\nslots = 0", "the value of slots does not fit `rollyard up`: Expected `int` >= 1"),
        ("[up]\nmax-model-len = 1", "the value of max-model-len does not fit `rollyard up`"),
        ("[up]\nprorl = 1", "the value of prorl does not fit `rollyard up`: Expected `bool`"),
        ("[up]\nllm = 'gpt'", "the value of llm does not fit `rollyard up`: Invalid enum value"),
        ("[up]\nrepositories = 3", "the value of repositories does not fit `rollyard up`"),
        ("up = 3", "up is a command; write a table, [up]"),
        ("[up\n", "cannot read the settings in"),
    ],
)
def test_what_no_command_takes_is_refused_with_the_nearest(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / CONFIG
    path.write_text(text)
    with pytest.raises(LaunchError) as refused:
        read_config(path, commands_of(app))
    assert sentence in str(refused.value)
    assert str(path) in str(refused.value)


def test_values_of_every_setting_can_be_checked() -> None:
    for command, settings in commands_of(app).items():
        for setting in settings.values():
            assert learnt(setting.kind), (command, setting)


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot read the settings in"):
        read_config(tmp_path / CONFIG, commands_of(app))


def test_a_variable_that_its_option_would_not_take_is_not_shown_as_a_setting(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLYARD_UP_SLOTS", "many")
    for command in (["up"], []):
        answer = rollyard("config", "show", *command)
        assert answer.exit_code != 0
        assert "Invalid value for '--slots'" in answer.output


@pytest.mark.parametrize("table", ["", "[up]\n"])
def test_a_setting_that_is_written_twice_is_refused(tmp_path: Path, table: str) -> None:
    path = tmp_path / CONFIG
    path.write_text(f"{table}agent_servers = 3\nagent-servers = 4\n")
    with pytest.raises(LaunchError, match="are the same setting"):
        read_config(path, commands_of(app))
