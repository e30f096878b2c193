"""Which environments and agents a server has, and what environments need of it."""

import sys
from pathlib import Path

import pytest

from agent_server.__main__ import parse
from agent_server.agents.command import CommandAgent
from agent_server.agents.tool_calls.formats import OUR_FORMATS, choose_format
from agent_server.agents.tool_loop import ToolLoop
from agent_server.environments.in_thread import in_thread
from agent_server.registry import (
    foreign_environments,
    graders,
    load_agents,
    load_tool_call_formats,
    our_environments,
)
from agent_server.service import load
from rollyard.errors import Conflict, LaunchError
from tests.agent_server.fakes import EchoEnvironment
from tests.llm_fixtures import POLICY


class Install:
    """Makes packages that declare entry points."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, package: str, group: str, line: str) -> None:
        information = self._directory / f"{package}-1.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n"
        )
        (information / "entry_points.txt").write_text(f"[{group}]\n{line}\n")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return Install(tmp_path)


def test_our_own_environments_and_agents_are_found_by_their_names() -> None:
    assert "arithmetic" in our_environments()
    assert our_environments()["arithmetic"].needs.sandbox is not None
    assert load_agents() == {"command": CommandAgent, "tool_loop": ToolLoop}


def test_an_environment_of_another_package_is_named_and_not_imported(install: Install) -> None:
    install("capitals", "rollyard.environments", "capitals = no.such.module:Capitals")
    assert [point.name for point in foreign_environments()] == ["capitals"]
    assert "capitals" not in our_environments()


@pytest.mark.parametrize("name", ["arithmetic", "capitals"])
def test_two_packages_may_not_name_the_same_environment(install: Install, name: str) -> None:
    install("one", "rollyard.environments", f"{name} = one:Environment")
    install("two", "rollyard.environments", f"{name} = two:Environment")
    with pytest.raises(Conflict, match=f"two packages name something '{name}'"):
        foreign_environments()


def test_graders_of_all_packages_are_named_by_their_data_source_and_not_imported(
    install: Install,
) -> None:
    install("riddles", "rollyard.graders", "riddles = no.such.module:grade")
    assert "riddles" in [point.name for point in graders()]


def test_an_agent_of_another_package_is_one_of_the_servers_own(install: Install) -> None:
    install("loops", "rollyard.agents", "loop = agent_server.agents.tool_loop:ToolLoop")
    assert load_agents() == {"command": CommandAgent, "tool_loop": ToolLoop, "loop": ToolLoop}


def test_a_tool_call_format_of_another_package_is_tried_before_ours(install: Install) -> None:
    assert load_tool_call_formats() == OUR_FORMATS
    install(
        "ours", "rollyard.tool_call_formats", "mine = agent_server.agents.tool_calls.hermes:Hermes"
    )
    formats = load_tool_call_formats()
    assert list(formats) == ["mine", *OUR_FORMATS]
    assert choose_format(formats, "", "<tool_call>") == "mine"


def test_a_tool_call_format_of_another_package_takes_none_of_our_names(install: Install) -> None:
    install("ours", "rollyard.tool_call_formats", "hermes = some.module:Hermes")
    with pytest.raises(Conflict, match="'hermes', as a tool-call format of Rollyard is"):
        load_tool_call_formats()


def test_a_tool_call_format_is_named_or_found_in_the_models_chat_template() -> None:
    arguments = [
        *("--server-id", "a", "--model", str(POLICY)),
        *("--orchestrator", "http://127.0.0.1:1", "--llm-server", "http://127.0.0.1:2"),
    ]
    assert load(parse(arguments)).template.tool_calls is OUR_FORMATS["hermes"]
    named = load(parse([*arguments, "--tool-calls", "mistral"]))
    assert named.template.tool_calls is OUR_FORMATS["mistral"]
    with pytest.raises(LaunchError, match="there is no tool-call format 'none'; name one of"):
        load(parse([*arguments, "--tool-calls", "none"]))


def test_an_agent_that_cannot_be_imported_is_named(install: Install) -> None:
    install("broken", "rollyard.agents", "browser = no.such.module:Browser")
    with pytest.raises(LaunchError, match=r"cannot load 'browser' from no.such.module:Browser"):
        load_agents()


def test_a_server_starts_only_with_all_that_installed_environments_need(
    install: Install, tmp_path: Path
) -> None:
    (tmp_path / "needy.py").write_text(
        "from agent_server.environments.protocol import Needs\n"
        "class Needy:\n    needs = Needs(tags=('h100',))\n"
    )
    install("needy", "rollyard.environments", "needy = needy:Needy")
    url = "http://127.0.0.1:9"
    server = ("--server-id", "a", "--orchestrator", url, "--llm-server", url)
    line = [*server, "--model", str(POLICY)]
    with pytest.raises(LaunchError, match=r"'needy' needs .* does not have: the tag 'h100'"):
        load(parse(line))
    assert [point.name for point in load(parse([*line, "--tag", "h100"])).environments] == ["needy"]


def test_needs_that_are_none_are_refused() -> None:
    wordy = type("Wordy", (EchoEnvironment,), {"needs": {"sandbox": True}})
    with pytest.raises(TypeError, match=r"its `needs` must be a Needs of .*, got {'sandbox': Tr"):
        in_thread(wordy)
