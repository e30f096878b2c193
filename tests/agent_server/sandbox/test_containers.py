"""The command lines with which other programs hold a sandbox. Where one is installed, the contract
suite runs with it."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.containers import (
    CONTAINERS,
    Container,
    apptainer,
    make_skeleton,
    podman,
    why_not_here,
    with_home,
)
from agent_server.sandbox.holder import Holder, named
from agent_server.sandbox.protocol import SandboxNeeds, SandboxUnavailable
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import InvalidMessage
from tests.waiting import until

PLAIN = Container(
    name="/home/me/ledger/sandbox-7",
    image=None,
    skeleton=Path("/home/me/ledger/skeleton"),
    shown=((Path("/srv/tools/editor"), "/opt/rollyard/tools/editor"),),
    package=Path("/home/me/ledger/package"),
    tmp_bytes=64 << 20,
    workspace_bytes=1 << 30,
)
OF_IMAGE = msgspec.structs.replace(PLAIN, image=Path("/srv/images/debian"))


def pairs(argv: list[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(argv))


def test_podman_shows_the_machine_read_only_with_files_of_a_bounded_size() -> None:
    argv = podman(PLAIN)
    assert argv[:2] == ["podman", "run"]
    assert {"--read-only", "--read-only-tmpfs=false"} <= {*argv}
    for expected in (
        ("--network", "none"),
        ("--cap-drop", "all"),
        ("--security-opt", "no-new-privileges"),
        ("--cgroups", "disabled"),
        ("--volume", "/usr:/usr:ro"),
        ("--volume", "/home/me/ledger/package:/rollyard:ro"),
        ("--volume", "/srv/tools/editor:/opt/rollyard/tools/editor:ro"),
        ("--tmpfs", f"/workspace:size={1 << 30},mode=0755"),
        ("--rootfs", "/home/me/ledger/skeleton"),
    ):
        assert expected in pairs(argv)


def test_podman_lets_a_sandbox_change_its_image_for_itself() -> None:
    argv = podman(OF_IMAGE)
    assert ("--rootfs", "/srv/images/debian:O") in pairs(argv)
    assert "--read-only" not in argv
    assert ("--volume", "/usr:/usr:ro") not in pairs(argv)


def test_a_container_of_an_image_has_this_machines_programs_for_its_tools(tmp_path: Path) -> None:
    (tmp_path / "tools" / "editor").mkdir(parents=True)
    sources = RootSources(tool_environments=tmp_path / "tools")
    needs = SandboxNeeds(image="me/image:1", tools=("editor",))
    container = msgspec.structs.replace(OF_IMAGE, shown=sources.tools(needs))
    assert ("--volume", "/usr:/opt/rollyard/machine:ro") in pairs(podman(container))
    assert ("--bind", "/usr:/opt/rollyard/machine:ro") in pairs(apptainer(container))


def test_apptainer_contains_everything_and_has_no_network() -> None:
    argv = apptainer(PLAIN)
    assert argv[:3] == ["apptainer", "--quiet", "exec"]
    for option in ("--userns", "--containall", "--no-privs"):
        assert option in argv
    for expected in (
        ("--network", "none"),
        ("--bind", "/usr:/usr:ro"),
        ("--bind", "/srv/tools/editor:/opt/rollyard/tools/editor:ro"),
        ("/home/me/ledger/skeleton", "/bin/bash"),
    ):
        assert expected in pairs(argv)
    assert ("--writable-tmpfs", "/srv/images/debian") in pairs(apptainer(OF_IMAGE))


@pytest.mark.parametrize("program", CONTAINERS)
def test_a_holder_ends_with_its_input_and_bears_the_name_of_its_sandbox(program: str) -> None:
    argv = CONTAINERS[program](PLAIN)
    assert argv[-4:-2] == ["/bin/bash", "-c"]
    assert argv[-1] == PLAIN.name
    holder = subprocess.Popen(argv[-4:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "\n"
    assert named(argv[-4:]) == holder.pid
    holder.communicate()
    until("it is found no more", lambda: named(argv[-4:]) is None)


def test_a_program_may_warn_before_its_container_is_made() -> None:
    argv = podman(PLAIN)[-4:]
    warning = ["/bin/sh", "-c", 'echo "/ is not a shared mount" >&2; exec "$@"', "podman", *argv]
    holder = Holder(lambda _: warning, lambda _: named(argv))
    assert holder.alive
    holder.close()


def test_what_a_program_says_in_place_of_a_container_is_the_reason() -> None:
    failing = ["/bin/sh", "-c", "echo no subordinate users"]
    with pytest.raises(SandboxUnavailable, match="could not be made: no subordinate users"):
        Holder(lambda _: failing, lambda _: None)


def test_a_program_is_given_its_home_and_no_other_variables() -> None:
    names = {word.split("=")[0] for word in with_home(["podman"])[1:-1]}
    assert names == {"HOME", "PATH", "XDG_RUNTIME_DIR"}


def test_the_skeleton_has_a_place_for_all_that_is_shown(tmp_path: Path) -> None:
    make_skeleton(tmp_path / "skeleton")
    for name in ("usr", "proc", "dev", "tmp", "workspace"):
        assert (tmp_path / "skeleton" / name).is_dir()
    assert (tmp_path / "skeleton" / "bin").readlink() == Path("usr/bin")


@pytest.mark.parametrize("program", [name for name in CONTAINERS if why_not_here(name)])
def test_a_program_that_cannot_be_used_here_is_refused_with_the_reason(program: str) -> None:
    missing = shutil.which(program) is None
    reason = f"there is no {program}" if missing else "need an agent server that is not root's"
    assert missing or os.geteuid() == 0
    with pytest.raises(SandboxUnavailable, match=reason):
        Bubblewrap(SandboxSettings(provider=program))


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidMessage, match="choose one of bubblewrap, apptainer, podman"):
        SandboxSettings(provider="docker")
