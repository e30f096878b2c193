"""`rollyard kubernetes render | secret | keep`."""

import sys
import time

import typer

from launch.engine_options import built
from launch.fleet import read_fleet
from launch.fleet_files import files_in, take_over
from launch.fleet_keeper import LOOK_SECONDS, FleetKeeper
from launch.kubernetes.manifest import manifest
from launch.kubernetes.objects import objects_of
from launch.kubernetes.options import FleetName, Namespace, SecretName, chosen_recipe
from launch.kubernetes.recipe import SOURCE, KubernetesFleet
from launch.kubernetes.secret import secret as made_secret
from launch.node_command import FleetDirectory, Source
from launch.up import tell_operator

commands = typer.Typer(help="Run Rollyard as pods of Kubernetes.", no_args_is_help=True)


@commands.command("render")
@built("recipe", chosen_recipe)
def render_command(*, recipe: KubernetesFleet) -> None:
    """Print all objects of a fleet but its Secret, for `kubectl apply`. All paths are those in the
    containers."""
    sys.stdout.write(manifest(objects_of(recipe)))


@commands.command("secret")
def secret_command(
    *, name: FleetName = "rollyard", namespace: Namespace = "default", secret: SecretName = ""
) -> None:
    """Print a Secret with fresh tokens, for `kubectl create`."""
    sys.stdout.write(manifest([made_secret(secret or f"{name}-tokens", namespace)]))


@commands.command("keep", hidden=True)
def keep_command(directory: FleetDirectory, source: Source = SOURCE) -> None:
    """Plan the fleet again when its nodes fall silent or come back, until SIGTERM."""
    assert source is not None
    take_over(files_in(source), directory.resolve())
    keeper = FleetKeeper(read_fleet(directory.resolve()), tell_operator, shared=False)
    while True:
        keeper.look()
        time.sleep(LOOK_SECONDS)  # nothing tells of a node that falls silent
