"""`rollyard config show`: the settings of a command, and where each comes from."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from launch.config import Command, ConfigFile
from launch.output import Json, Listing, show
from rollyard.errors import LaunchError
from rollyard.messages import Message

config_commands = typer.Typer(
    help="The settings of commands, and where each comes from.", no_args_is_help=True
)

_ORIGINS = {"COMMANDLINE": "the command line", "DEFAULT": "default"}

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[COMMAND [OPTIONS]]",
        help="A command, such as `up`, with options of it if you like.  [default: of all commands "
        "what is not at its default]",
        show_default=False,
    ),
]


class ShownSetting(Message, frozen=True, kw_only=True):
    """One setting of a command."""

    command: str
    key: str
    value: Any
    origin: str
    """`default`, `the command line`, the file, or the variable."""


class ShownConfig(Message, frozen=True):
    """The settings of one command, or those of all that are not left at their defaults."""

    file: str | None
    settings: tuple[ShownSetting, ...]


@config_commands.callback()
def config() -> None:
    """The settings of commands, and where each comes from."""


@config_commands.command("show", context_settings={"ignore_unknown_options": True})
def show_config_command(context: typer.Context, words: Words = None, json: Json = False) -> None:
    """Show what a command's settings are, and where each comes from."""
    found = context.find_object(ConfigFile)
    assert found is not None
    if words:
        command = _named(words, found)
        settings = tuple(_settings(context, found, command, words[len(command) :]))
    else:
        every = (each for one in found.commands for each in _settings(context, found, one, []))
        settings = tuple(each for each in every if each.origin != _ORIGINS["DEFAULT"])
    shown = Listing("command", "setting", "value", "from")
    for each in settings:
        shown.add(each.command, each.key, _as_text(each.value), each.origin)
    path = None if found.path is None else str(found.path)
    show(ShownConfig(path, settings), [shown], json=json)


def _named(words: list[str], found: ConfigFile) -> Command:
    """The command with which the words begin. Raises `LaunchError`."""
    for count in range(1, len(words) + 1):
        if tuple(words[:count]) in found.commands:
            return tuple(words[:count])
    known = ", ".join(" ".join(command) for command in found.commands)
    raise LaunchError(f"there is no command {' '.join(words)}", fix=f"there are: {known}")


def _settings(
    context: typer.Context, found: ConfigFile, command: Command, options: list[str]
) -> Iterator[ShownSetting]:
    """What typer makes of the command's options, without carrying it out."""
    parsed: Any = context.find_root()
    for word in command:
        group, last = parsed.command, word == command[-1]
        member = group.get_command(parsed, word)
        # What a command is about need not be said here; a value that does not fit is refused.
        arguments = options if last else []
        parsed = member.make_context(
            word, list(arguments), parent=parsed, resilient_parsing=not arguments
        )
    _check_variables(parsed)
    for setting in found.commands[command].values():
        source = parsed.get_parameter_source(setting.parameter)
        value = parsed.params[setting.parameter]
        yield ShownSetting(
            command=" ".join(command),
            key=setting.key,
            value=_plain(value),
            origin=_origin(source.name, setting.variables(parsed.auto_envvar_prefix), found),
        )


def _check_variables(parsed: Any) -> None:
    """Refuse a variable whose value the option would not take, also where what a command is about
    is not said."""
    parsed.resilient_parsing = False
    for parameter in parsed.command.get_params(parsed):
        if parsed.get_parameter_source(parameter.name).name == "ENVIRONMENT":
            parameter.process_value(parsed, parameter.value_from_envvar(parsed))


def _origin(source: str, variables: tuple[str, ...], found: ConfigFile) -> str:
    if source == "ENVIRONMENT":
        return f"the variable {next(name for name in variables if os.environ.get(name))}"
    return str(found.path) if source == "DEFAULT_MAP" else _ORIGINS[source]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return "-" if value is None or value == "" else str(value)
