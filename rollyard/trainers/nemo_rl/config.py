"""Whether a Run and NeMo-RL's MasterConfig agree."""

from typing import Any

from rollyard.errors import InvalidMessage
from rollyard.messages import RunSettings
from rollyard.trainers.agreement import check_groups, check_temperature


def check(
    settings: RunSettings, config: Any, *, refitted: bool, clips_around_sampled: bool
) -> None:
    """Raise `InvalidMessage` where the Run's settings and a MasterConfig do not agree.

    `refitted` says that NeMo-RL puts the weights on the LLM servers, and `clips_around_sampled`
    that the old logprobs are those of the samplers."""
    _check_sampling(settings, config)
    _check_loop(config)
    if refitted and settings.max_staleness:
        raise InvalidMessage(
            f"max_staleness={settings.max_staleness} samples while NeMo-RL puts weights on the LLM "
            "servers",
            fix="client.run(..., max_staleness=0), or give `save`",
        )
    corrected = config.loss_fn.use_importance_sampling_correction or clips_around_sampled
    if settings.max_staleness and not corrected:
        raise InvalidMessage(
            f"with max_staleness={settings.max_staleness} tokens are of older weights, which "
            "NeMo-RL's loss would take for the present ones",
            fix="set loss_fn.use_importance_sampling_correction, or clip_around_sampled=True",
        )


def _check_sampling(settings: RunSettings, config: Any) -> None:
    members = config.grpo.num_generations_per_prompt
    check_groups(settings, "NeMo-RL", "num_generations_per_prompt", members)
    generation = config.policy["generation"]
    check_temperature(settings, "NeMo-RL", "generation.temperature", generation["temperature"])
    if settings.sampling.top_p != generation["top_p"]:
        raise InvalidMessage(
            f"NeMo-RL's policy has top_p={generation['top_p']}, and the run samples at "
            f"{settings.sampling.top_p}",
            fix="give both the same top_p",
        )


def _check_loop(config: Any) -> None:
    refused = {
        "grpo.use_dynamic_sampling": config.grpo.use_dynamic_sampling,
        "grpo.async_grpo.enabled": config.grpo.async_grpo and config.grpo.async_grpo.enabled,
        "data_plane.enabled": (config.data_plane or {}).get("enabled"),
        "data.use_multiple_dataloader": config.data.get("use_multiple_dataloader"),
        "env.should_use_nemo_gym": config.env.get("should_use_nemo_gym"),
    }
    for name, is_set in refused.items():
        if is_set:
            raise InvalidMessage(
                f"{name} is set, and groups are chosen, and sampled ahead, by Rollyard",
                fix=f"set {name}=false; client.run has `criterion` and `max_staleness`",
            )
