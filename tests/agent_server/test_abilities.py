"""What environments need of an agent server, and what becomes of those that need something else."""

from pathlib import Path
from typing import Any

import pytest

from agent_server.abilities import ServerAbilities
from agent_server.environments.in_thread import in_thread
from agent_server.environments.protocol import EnvironmentKind, Needs
from agent_server.repositories import Repositories
from agent_server.sandbox.protocol import SandboxNeeds
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import LaunchError
from tests.agent_server.fakes import EchoEnvironment
from tests.agent_server.running import AGENTS

ABILITIES = ServerAbilities(agents=AGENTS, tags={"h100"}, repositories=Repositories(Path()))


def needing(**needs: Any) -> EnvironmentKind:
    return in_thread(type("Needy", (EchoEnvironment,), {"needs": Needs(**needs)}))


LACKING = pytest.mark.parametrize(
    ("needs", "lacking"),
    [
        ({"agent": "browser"}, "the agent 'browser'"),
        ({"tags": ("h100", "nvme")}, "the tag 'nvme'"),
        ({"sandbox": SandboxNeeds(programs=("gti",))}, "the program 'gti' in /usr/bin:/bin"),
        ({"sandbox": SandboxNeeds(image="a:1")}, "the image 'a:1' in the directory of --images"),
        (
            {"sandbox": SandboxNeeds(tools=("saw",))},
            "the tool environment 'saw' in the directory of --tool-environments",
        ),
        (
            {"packages": "games"},
            "the tool environment 'games' with what it imports (sh launch/environment.sh games)",
        ),
    ],
)


@LACKING
def test_an_environment_that_needs_what_a_server_does_not_have_is_refused_by_name(
    needs: dict[str, Any], lacking: str
) -> None:
    kinds = {"modest": in_thread(EchoEnvironment), "needy": needing(**needs)}
    with pytest.raises(LaunchError, match=r"'needy' needs what this agent server") as refused:
        ABILITIES.check(kinds)
    assert refused.value.message.endswith(f"does not have: {lacking}")


@LACKING
def test_one_that_is_not_insisted_on_is_left_out(needs: dict[str, Any], lacking: str) -> None:
    kinds = {"modest": in_thread(EchoEnvironment), "needy": needing(**needs)}
    assert list(ABILITIES.usable(kinds)) == ["modest"]


def test_a_server_without_repositories_lacks_them() -> None:
    kinds = {"swe": needing(repositories=True)}
    with pytest.raises(LaunchError, match=r"repositories \(--repositories DIR\)"):
        ServerAbilities(agents=AGENTS).check(kinds)


def test_images_will_do_where_rows_name_them() -> None:
    with_images = ServerAbilities(
        agents=AGENTS, sandboxes=SandboxSettings(sources=RootSources(images=Path()))
    )
    kind = needing(repositories=True, image_fields=("image",))
    assert list(with_images.usable({"swe": kind})) == ["swe"]
    assert not with_images.usable({"other": needing(repositories=True)})
    with pytest.raises(LaunchError, match=r"--repositories DIR\) or images \(--images DIR\)"):
        ServerAbilities(agents=AGENTS).check({"swe": kind})


def test_an_environment_that_has_all_it_needs_is_taken() -> None:
    sandbox = SandboxNeeds(programs=("bash",), tools=("editor",))
    kinds = {"needy": needing(tags=("h100",), sandbox=sandbox, repositories=True)}
    ABILITIES.check(kinds)
    assert list(ABILITIES.usable(kinds)) == ["needy"]
