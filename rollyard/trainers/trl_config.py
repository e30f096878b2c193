"""Whether a Run and TRL's GRPOConfig agree."""

import math
from typing import Any

from rollyard.errors import InvalidMessage
from rollyard.messages import RunSettings, Unit


def check(settings: RunSettings, config: Any) -> None:
    """Raise `InvalidMessage` where the Run's settings and a GRPOConfig do not agree."""
    if settings.unit is not Unit.GROUPS or settings.group_size != config.num_generations:
        raise InvalidMessage(
            f"TRL takes groups of num_generations={config.num_generations}, and the run's are of "
            f"{settings.group_size} {settings.unit}",
            fix=f"client.run(..., group_size={config.num_generations}, unit='groups')",
        )
    if settings.sampling.temperature != config.temperature:
        raise InvalidMessage(
            f"TRL divides its logits by temperature={config.temperature}, and the run samples at "
            f"{settings.sampling.temperature}",
            fix="give both the same temperature",
        )
    if config.steps_per_generation % config.gradient_accumulation_steps:
        raise InvalidMessage(
            f"steps_per_generation={config.steps_per_generation} is no multiple of "
            f"gradient_accumulation_steps={config.gradient_accumulation_steps}: a batch would be "
            "acknowledged before the optimizer's step on it",
            fix="leave steps_per_generation out, or make it a multiple",
        )
    if config.max_steps < 1:
        raise InvalidMessage(
            "the dataset is Rollyard's, and has no end that TRL knows", fix="set max_steps"
        )
    for name, steps in (("max_steps", config.max_steps), ("save_steps", _save_steps(config))):
        if steps % steps_of_a_batch(config):
            raise InvalidMessage(
                f"{name}={steps} ends in the middle of a batch: each is trained on for "
                f"{steps_of_a_batch(config)} steps, and would be for some of them again",
                fix=f"make {name} a multiple",
            )


def steps_of_a_batch(config: Any) -> int:
    """The optimizer's steps on each Batch."""
    micro_steps = config.steps_per_generation * config.num_iterations
    return int(micro_steps // config.gradient_accumulation_steps)


def _save_steps(config: Any) -> int:
    """Steps between two checkpoints; 0 if there are none."""
    if config.save_strategy != "steps":
        return 0
    steps: float = config.save_steps
    return math.ceil(config.max_steps * steps if steps < 1 else steps)
