"""Whether a Run samples what its trainer takes for granted."""

from rollyard.errors import InvalidMessage
from rollyard.messages import RunSettings, Unit


def check_groups(settings: RunSettings, trainer: str, option: str, members: int) -> None:
    """Raise `InvalidMessage` unless the Run's Groups are of `members`: the trainer's `option`."""
    if settings.unit is not Unit.GROUPS or settings.group_size != members:
        raise InvalidMessage(
            f"{trainer} takes groups of {option}={members}, and the run has "
            f"group_size={settings.group_size} and unit={str(settings.unit)!r}",
            fix=f"client.run(..., group_size={members}, unit='groups'), under a new run_id if it "
            "was begun, or the trainer's option so",
        )


def check_temperature(settings: RunSettings, trainer: str, option: str, temperature: float) -> None:
    """Raise `InvalidMessage` unless the Run samples at the trainer's `option`: logprobs would be
    those of another policy."""
    if settings.sampling.temperature != temperature:
        raise InvalidMessage(
            f"{trainer} divides its logits by {option}={temperature}, and the run samples at "
            f"{settings.sampling.temperature}",
            fix="give both the same temperature",
        )
