"""Whether a Run and verl's configuration agree."""

from pathlib import Path
from typing import Any

from rollyard.errors import InvalidMessage
from rollyard.messages import RunSettings
from rollyard.trainers.agreement import check_groups, check_temperature


def check(settings: RunSettings, config: Any) -> None:
    """Raise `InvalidMessage` where the Run's settings and verl's `config` do not agree."""
    check_sampling(settings, config.actor_rollout_ref.rollout)
    mode = config.trainer.v1.trainer_mode
    if mode != "sync":
        raise InvalidMessage(
            f"trainer.v1.trainer_mode={mode} asks for prompts one by one, and the groups of a "
            "batch come together",
            fix="trainer.v1.trainer_mode=sync; rollyard samples while verl trains, in any mode",
        )
    filtered = config.algorithm.get("filter_groups")
    if filtered is not None and filtered.get("enable"):
        raise InvalidMessage(
            "algorithm.filter_groups drops groups that the run was asked for",
            fix="algorithm.filter_groups.enable=False; the run's criterion filters",
        )


def check_sampling(settings: RunSettings, rollout: Any) -> None:
    """The same for verl's rollout configuration."""
    check_groups(settings, "verl", "rollout.n", rollout.n)
    check_temperature(settings, "verl", "rollout.temperature", rollout.temperature)


def checkpoints_of(rollout: Any) -> Path:
    """The directory for weights, of verl's rollout configuration. All LLM servers can read it."""
    custom = rollout.custom or {}
    if "checkpoints" not in custom:
        raise InvalidMessage(
            "verl's configuration names no directory for the weights that are published",
            fix="+actor_rollout_ref.rollout.custom.checkpoints=DIRECTORY, which LLM servers read",
        )
    return Path(custom["checkpoints"]).resolve()


def weights_of(directory: Path, step: int) -> Path:
    """Where verl writes its weights after `step`, until they are published."""
    return directory / f"step-{step}"
