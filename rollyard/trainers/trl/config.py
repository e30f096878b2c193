"""Whether a Run and the config of TRL's trainer agree."""

import math
from typing import Any

from rollyard.errors import InvalidMessage
from rollyard.messages import RunSettings
from rollyard.trainers.agreement import check_groups, check_temperature

SAMPLED_OTHERWISE = {"top_k": (0, -1, None), "min_p": (None, 0), "repetition_penalty": (1, None)}
"""Options of TRL's own sampling that a Run has none of, with their values that change nothing."""


def check(settings: RunSettings, config: Any) -> None:
    """Raise `InvalidMessage` where the Run's settings and a GRPOConfig do not agree."""
    _check_sampling(settings, config)
    if config.steps_per_generation % config.gradient_accumulation_steps:
        raise InvalidMessage(
            f"steps_per_generation={config.steps_per_generation} is no multiple of "
            f"gradient_accumulation_steps={config.gradient_accumulation_steps}: a batch would be "
            "acknowledged before the optimizer's step on it",
            fix="leave steps_per_generation out, or make it a multiple",
        )
    _check_ends(config, steps_of_a_batch(config))


def check_async(settings: RunSettings, config: Any) -> None:
    """Raise `InvalidMessage` where the Run's settings and an AsyncGRPOConfig do not agree."""
    _check_sampling(settings, config)
    samples = samples_of_a_batch(config)
    if samples % config.num_generations:
        raise InvalidMessage(
            f"the {samples} samples between two updates of the weights are no whole groups of "
            f"num_generations={config.num_generations}",
            fix="per_device_train_batch_size * gradient_accumulation_steps * processes * "
            "weight_sync_steps is to be a multiple",
        )
    if config.token_budget is None or config.token_budget > 0:
        raise InvalidMessage(
            f"with token_budget={config.token_budget} a step is of as many samples as fit, and not "
            "of a batch",
            fix="token_budget=0",
        )
    if config.max_staleness < settings.max_staleness:
        raise InvalidMessage(
            f"TRL drops samples older than max_staleness={config.max_staleness}, and the run "
            f"allows {settings.max_staleness}: what is dropped would never be trained on",
            fix="give both the same max_staleness",
        )
    _check_ends(config, config.weight_sync_steps)


def steps_of_a_batch(config: Any) -> int:
    """The optimizer's steps on each Batch, of a GRPOConfig."""
    micro_steps = config.steps_per_generation * config.num_iterations
    return int(micro_steps // config.gradient_accumulation_steps)


def samples_of_a_batch(config: Any) -> int:
    """The samples between two updates of the weights, of an AsyncGRPOConfig."""
    micro_batch = config.per_device_train_batch_size * config.world_size
    return int(micro_batch * config.gradient_accumulation_steps * config.weight_sync_steps)


def _check_sampling(settings: RunSettings, config: Any) -> None:
    check_groups(settings, "TRL", "num_generations", config.num_generations)
    check_temperature(settings, "TRL", "temperature", config.temperature)
    if config.top_p != settings.sampling.top_p:
        raise InvalidMessage(
            f"TRL is given top_p={config.top_p}, and the run samples at {settings.sampling.top_p}",
            fix="give both the same top_p",
        )
    for name, neutral in SAMPLED_OTHERWISE.items():
        if getattr(config, name) not in neutral:
            raise InvalidMessage(
                f"TRL is given {name}={getattr(config, name)}, but it is Rollyard that samples, "
                "which has no such option",
                fix=f"leave {name} out",
            )
    if config.max_steps < 1:
        raise InvalidMessage(
            "the dataset is Rollyard's, and has no end that TRL knows", fix="set max_steps"
        )
    _check_kept(config)


def _check_ends(config: Any, steps_of_each: int) -> None:
    for name, steps in (("max_steps", config.max_steps), ("save_steps", _save_steps(config))):
        if steps % steps_of_each:
            raise InvalidMessage(
                f"{name}={steps} ends in the middle of a batch: each is trained on for "
                f"{steps_of_each} steps, and would be for some of them again",
                fix=f"make {name} a multiple",
            )


def _check_kept(config: Any) -> None:
    """TRL removes old checkpoints before the newest one is whole, and keeps the best one."""
    needed = 2 if config.metric_for_best_model is None else 3
    if 0 < (config.save_total_limit or 0) < needed:
        raise InvalidMessage(
            f"save_total_limit={config.save_total_limit} removes the checkpoint to go on from "
            "before the next one has the run's state: a trainer killed then would begin anew",
            fix=f"save_total_limit={needed} or more",
        )


def _save_steps(config: Any) -> int:
    """Steps between two checkpoints; 0 if there are none."""
    if config.save_strategy != "steps":
        return 0
    steps: float = config.save_steps
    return math.ceil(config.max_steps * steps if steps < 1 else steps)
