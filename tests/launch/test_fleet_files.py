"""What a node takes over that shares no directory with the others."""

import stat
from pathlib import Path

import pytest

from launch.demo import POLICY
from launch.documents import as_text
from launch.fleet import FLEET, FleetPlan, FleetSettings, read_fleet
from launch.fleet_files import PACKAGES, files_in, take_over
from orchestrator.placement import FleetNode, place
from rollyard.errors import LaunchError
from rollyard.tokens import make_token_file, read_tokens


def mounted(directory: Path, model: Path) -> Path:
    """A directory as it is mounted in a pod: a group may read the secrets in it."""
    directory.mkdir()
    settings = FleetSettings(model=model, directory=Path("/elsewhere"), queues=Path("/q"))
    placement = place([FleetNode(name="n", gpus=1)])
    plan = FleetPlan(settings=settings, placement=placement, addresses={"n": "n.example"})
    (directory / FLEET).write_text(as_text(plan))
    make_token_file(directory / "tokens")
    (directory / "tokens").chmod(0o440)
    return directory


def test_secrets_are_its_users_alone_and_the_directory_is_its_own(tmp_path: Path) -> None:
    source, own = mounted(tmp_path / "source", Path("/models/m")), tmp_path / "own"
    with pytest.raises(LaunchError, match="not a file for its owner alone"):
        read_tokens(source / "tokens")
    for _ in range(2):  # a container that starts again finds its directory as it was
        take_over(files_in(source), own)
        assert stat.S_IMODE((own / "tokens").stat().st_mode) == 0o600
        assert len(list(read_tokens(own / "tokens"))) == 4
        fleet = read_fleet(own)
        assert fleet.settings.directory == own
        assert fleet.settings.model == Path("/models/m")
    assert {path.name for path in own.iterdir()} == {FLEET, "tokens"}


def test_a_model_that_comes_along_is_found_wherever_rollyard_is_installed(tmp_path: Path) -> None:
    source = mounted(tmp_path / "source", POLICY.relative_to(PACKAGES))
    take_over(files_in(source), tmp_path / "own")
    assert read_fleet(tmp_path / "own").settings.model == POLICY


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"cannot take over the fleet's files .*fleet\.json"):
        files_in(tmp_path)
