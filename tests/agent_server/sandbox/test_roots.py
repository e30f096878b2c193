"""Roots of sandboxes: images that each sandbox changes for itself, and tool environments."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.command import NOBODY
from agent_server.sandbox.protocol import CommandResult, Sandbox, SandboxNeeds
from agent_server.sandbox.roots import RootSources
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import InvalidMessage

IMAGE = "library/debian:12,slim"
"""A name with all that separates things elsewhere."""


@pytest.fixture
def sources(own_tmp: Path) -> RootSources:
    """One image, of links to this machine's programs and a directory that a sandbox may change, and
    one tool environment."""
    image = own_tmp / "images" / IMAGE
    (image / "testbed").mkdir(parents=True)
    (image / "testbed" / "file").write_text("as it was\n")
    tool = own_tmp / "tools" / "greeter" / "bin"
    tool.mkdir(parents=True)
    (tool / "greet").write_text("#!/bin/sh\necho hello\n")
    (tool / "greet").chmod(0o755)
    for path in (image / "testbed", image / "testbed" / "file"):
        os.chown(path, *((NOBODY, NOBODY) if os.geteuid() == 0 else (-1, -1)))
    for directory in ("bin", "lib", "lib64"):
        (image / directory).symlink_to(f"usr/{directory}")
    (image / "usr").mkdir()
    return RootSources(images=own_tmp / "images", tool_environments=own_tmp / "tools")


@pytest.fixture
def maker(sources: RootSources, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bubblewrap]:
    # The image is a skeleton: this machine's programs are its programs.
    real = RootSources.options
    shown = ["--ro-bind", "/usr", "/usr"]
    monkeypatch.setattr(
        RootSources,
        "options",
        lambda self, needs, own: real(self, needs, [*(shown if needs.image else ()), *own]),
    )
    made = Bubblewrap(SandboxSettings(sources=sources))
    yield made
    made.close()


def sh(sandbox: Sandbox, script: str) -> CommandResult:
    return sandbox.bash(script, deadline_seconds=10)


def test_an_image_is_changed_by_its_sandbox_for_itself_alone(
    maker: Bubblewrap, sources: RootSources
) -> None:
    needs = SandboxNeeds(image=IMAGE)
    with maker.open(needs) as one, maker.open(needs) as other:
        assert sh(one, "echo changed > /testbed/file; touch /testbed/new /new").exit_code == 0
        assert sh(one, "cat /testbed/file").output == "changed\n"
        assert one.run(["/bin/cat", "/testbed/file"], deadline_seconds=10).output == "changed\n"
        assert sh(other, "cat /testbed/file; ls /testbed").output == "as it was\nfile\n"
    assert sources.images is not None
    assert (sources.images / IMAGE / "testbed" / "file").read_text() == "as it was\n"


def test_a_fresh_sandbox_has_the_image_as_it_was(maker: Bubblewrap) -> None:
    with maker.open(SandboxNeeds(image=IMAGE)) as sandbox:
        sh(sandbox, "echo changed > /testbed/file")
        assert sandbox.fresh().read("/testbed/file", most_bytes=99) == b"as it was\n"


def test_a_tool_environment_is_there_and_cannot_be_changed(maker: Bubblewrap) -> None:
    with maker.open(SandboxNeeds(tools=("greeter",))) as sandbox:
        assert sh(sandbox, "/opt/rollyard/tools/greeter/bin/greet").output == "hello\n"
        assert sh(sandbox, "touch /opt/rollyard/tools/greeter/new").exit_code != 0
    with maker.open(SandboxNeeds()) as sandbox:
        assert sh(sandbox, "ls /opt").exit_code != 0


@pytest.mark.parametrize(
    "needs",
    [
        SandboxNeeds(image="no-such"),
        SandboxNeeds(image="../tools"),
        SandboxNeeds(image="."),
        SandboxNeeds(image="/etc"),
        SandboxNeeds(image="library"),
        SandboxNeeds(image="long/" * 2000),
        SandboxNeeds(tools=("no-such",)),
        SandboxNeeds(tools=("../images",)),
    ],
    ids=str,
)
def test_what_is_not_below_the_operators_directories_is_refused(
    maker: Bubblewrap, needs: SandboxNeeds
) -> None:
    with pytest.raises(InvalidMessage, match="this server has no sandbox with"):
        maker.open(needs)


def test_without_directories_there_are_no_images() -> None:
    assert list(RootSources().missing(SandboxNeeds(image="x", programs=("bash",)))) == [
        "the image 'x' in the directory of --images"
    ]


def test_a_tool_environment_that_the_user_of_sandboxes_cannot_reach_is_missing(
    own_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_tmp / "closed" / "saw").mkdir(parents=True)
    sources, needs = RootSources(tool_environments=own_tmp / "closed"), SandboxNeeds(tools=("saw",))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert list(sources.missing(needs)) == []
    (own_tmp / "closed").chmod(0o700)
    (reason,) = sources.missing(needs)
    assert "where every user can reach it" in reason


def test_a_program_that_this_machine_lacks_is_named() -> None:
    (problem,) = RootSources().missing(SandboxNeeds(programs=("bash", "no-such-program")))
    assert problem.startswith("the program 'no-such-program'")


def test_commands_cannot_lend_their_libraries_to_what_starts_the_next_one(
    maker: Bubblewrap,
) -> None:
    with maker.open(SandboxNeeds(image=IMAGE)) as sandbox:
        for attempt in (
            "mv /rollyard /elsewhere",
            "rm -rf /rollyard",
            "echo /evil.so > /etc/ld.so.preload",
            "rm -f /etc/ld.so.preload",
        ):
            assert sh(sandbox, attempt).exit_code != 0
        assert sh(sandbox, "rm /lib64").exit_code == 0
        ran = sandbox.run(["/bin/true"], deadline_seconds=10)
    assert ran.output.startswith("bwrap: execvp /bin/bash:"), (
        "bwrap itself was started all the same"
    )
