"""Options that a user may pass on to vLLM, and the few that only Rollyard sets."""

from collections.abc import Sequence

from rollyard.errors import LaunchError

OUR_OPTIONS = (
    "--host",
    "--port",
    "--model",
    "--served-model-name",
    "--seed",
    "--generation-config",
    "--logprobs-mode",
    "--lora-modules",
)
"""Options that only Rollyard sets. Other values would open vLLM to strangers, serve another model,
make samples alike, or give logprobs of another distribution than the one sampled from."""


def takes_adapters(options: Sequence[str]) -> bool:
    """Whether these options have vLLM take LoRA adapters."""
    return any(option.replace("_", "-") == "--enable-lora" for option in options)


def names_modules(options: Sequence[str]) -> bool:
    """Whether these options say which modules may have adapters."""
    names = (option.split("=")[0].replace("_", "-") for option in options)
    return "--lora-target-modules" in names


def check_further_options(options: Sequence[str]) -> None:
    """Raise `LaunchError` for an option of vLLM's that Rollyard has to set itself."""
    for option in options:
        name = option.split("=")[0].replace("_", "-")
        if len(name) > 2 and any(own.startswith(name) for own in OUR_OPTIONS):
            raise LaunchError(
                f"{name} is not to be given to vLLM: Rollyard sets it",
                fix="leave it out; `rollyard up --help` lists what can be chosen",
            )
