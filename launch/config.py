"""Settings from a file: `rollyard.toml`, in the working directory or named by `--config`.

- A table belongs to the command of its name, as `[env.try]` to `rollyard env try`. Its keys are the
  command's options, without dashes in front; what they take is what typer was told of the option.
- A key above all tables is for every command that has such an option, and one in the table of a
  group, as `[slurm]`, for every command of the group. Arguments have tables of commands only.
- What is in a table has precedence over what is above it; the environment has precedence over both
  (`ROLLYARD_UP_SLOTS` for the option `--slots` of `rollyard up`), and the command line over all.
- The whole file is checked at each start: a key that no option has is refused.
"""

import difflib
import inspect
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args

import msgspec
import typer
from typer.models import ArgumentInfo, OptionInfo

from rollyard.codec import learnt
from rollyard.errors import LaunchError

CONFIG = "rollyard.toml"
PREFIX = "ROLLYARD"
"""What the names of variables begin with."""

Command = tuple[str, ...]
"""The words of a command: `("env", "try")`."""
Values = dict[str, Any]
"""Values as typer takes defaults: parameter -> value, for each command, which are nested."""


class Setting(msgspec.Struct, frozen=True):
    """One option of a command, as its signature describes it."""

    key: str
    parameter: str
    """Name of the parameter of the function that is the command."""
    kind: Any
    """Type of its values, with the bounds that typer was given."""
    variable: str | None = None
    """Name of a variable of its own."""
    is_option: bool = True
    """False if it is an argument."""

    def variables(self, prefix: str) -> tuple[str, ...]:
        """The variables that set it for a command, the first of which counts."""
        own = () if self.variable is None else (self.variable,)
        return (*own, f"{prefix}_{self.parameter.upper()}")


Settings = dict[str, Setting]
"""Key -> what it sets."""


class ConfigFile(msgspec.Struct, frozen=True):
    """What a start of `rollyard` knows of its settings beyond typer."""

    path: Path | None
    """The file that was read, if any."""
    commands: dict[Command, Settings]


def commands_of(app: typer.Typer, before: Command = ()) -> dict[Command, Settings]:
    """All commands of an app, with their settings."""
    found: dict[Command, Settings] = {}
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        found[*before, name] = {each.key: each for each in _settings(command.callback)}
    for group in app.registered_groups:
        assert isinstance(group.name, str)
        assert group.typer_instance is not None
        found |= commands_of(group.typer_instance, (*before, group.name))
    return found


def find_config(named: Path | None) -> Path | None:
    """The file of settings: the one that was named, or else the working directory's, if any."""
    if named is not None:
        return named
    return Path(CONFIG) if Path(CONFIG).is_file() else None


def read_config(path: Path, commands: Mapping[Command, Settings]) -> Values:
    """The values that the file sets. Raises `LaunchError` for what no command takes."""
    try:
        written = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LaunchError(f"cannot read the settings in {path}: {error}") from error
    return _values(path, (), commands, written, {})


def _values(
    path: Path,
    before: Command,
    commands: Mapping[Command, Settings],
    written: Any,
    shared: Mapping[str, Any],
) -> Values:
    """The values of a command, or of all commands that begin `before`."""
    if not isinstance(written, dict):
        name = " ".join(before)
        raise LaunchError(f"{path}: {name} is a command", fix=f"write a table, [{name}]")
    if before in commands:
        return _of_command(path, before, commands[before], written, shared)
    below = {each: one for each, one in commands.items() if each[: len(before)] == before}
    members = {each[len(before)] for each in below}
    options = {key for one in below.values() for key, each in one.items() if each.is_option}
    own: dict[str, Any] = {}
    _check_unique(path, before, written)
    for key, value in written.items():
        # A name may be that of a command and of an option, as `llm` is.
        if _normal(key) in options and not (key in members and isinstance(value, dict)):
            own[key] = value
        elif key not in members:
            raise _unknown(path, before, key, members | options)
    return {
        name: _values(
            path,
            (*before, name),
            commands,
            {} if name in own else written.get(name, {}),
            {**shared, **own},
        )
        for name in members
    }


def _of_command(
    path: Path,
    command: Command,
    settings: Settings,
    own: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> Values:
    _check_unique(path, command, own)
    for key in own:
        if _normal(key) not in settings:
            raise _unknown(path, command, key, settings)
    values: Values = {}
    for key, value in itertools.chain(shared.items(), own.items()):
        setting = settings.get(_normal(key))
        if setting is not None and (key in own or setting.is_option):
            values[setting.parameter] = _checked(path, command, setting, value)
    return values


def _checked(path: Path, command: Command, setting: Setting, value: Any) -> Any:
    try:
        msgspec.convert(value, type=learnt(setting.kind), dec_hook=_path)
    except msgspec.ValidationError as error:
        name = f"rollyard {' '.join(command)}"
        raise LaunchError(
            f"{path}: the value of {setting.key} does not fit `{name}`: {error}",
            fix=f"`{name} --help` says what it takes",
        ) from error
    return value


def _path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"expected a path, got {value!r}")


def _check_unique(path: Path, table: Command, written: Iterable[str]) -> None:
    """Refuse an option that is written twice, with `-` and with `_`."""
    seen: dict[str, str] = {}
    for key in written:
        if other := seen.get(_normal(key)):
            where = f" in [{'.'.join(table)}]" if table else ""
            raise LaunchError(
                f"{path}: {other} and {key}{where} are the same setting", fix="write one of them"
            )
        seen[_normal(key)] = key


def _unknown(path: Path, table: Command, key: str, known: Iterable[str]) -> LaunchError:
    where = f" in [{'.'.join(table)}]" if table else ""
    names = sorted(known)
    near = difflib.get_close_matches(_normal(key), names, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    return LaunchError(f"{path}: there is no setting {key}{where}", fix=fix)


def _normal(key: str) -> str:
    return key.replace("_", "-")


def _settings(command: Any) -> Iterator[Setting]:
    for parameter in inspect.signature(command).parameters.values():
        annotated = get_args(parameter.annotation)
        if len(annotated) != 2 or not isinstance(annotated[1], OptionInfo | ArgumentInfo):
            continue  # such as typer's own context
        kind, info = annotated
        if isinstance(info, ArgumentInfo) and parameter.default is inspect.Parameter.empty:
            continue  # what a command is about is said with it
        kind = _bounded(kind, info)
        variable = info.envvar if isinstance(info.envvar, str) else None
        is_option = isinstance(info, OptionInfo)
        yield Setting(_key(parameter.name, info), parameter.name, kind, variable, is_option)


def _bounded(kind: Any, info: OptionInfo | ArgumentInfo) -> Any:
    """The type with the bounds that typer was given, which are those of its numbers."""
    bounds = {"ge": info.min, "le": info.max}
    given: Any = {name: bound for name, bound in bounds.items() if bound is not None}
    if not given:
        return kind
    members = (
        Annotated[each, msgspec.Meta(**given)] if each in (int, float) else each
        for each in get_args(kind) or (kind,)
    )
    return Union[tuple(members)]  # noqa: UP007 - of members that are known only now


def _key(parameter: str, info: OptionInfo | ArgumentInfo) -> str:
    declared: Sequence[str] = info.param_decls or ()
    flags = [each.lstrip("-") for each in declared if each.startswith("--")]
    return flags[0] if flags else _normal(parameter)


def config_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--config FILE` before the command, wherever it was."""
    ours = list(itertools.takewhile(lambda each: each != "--", arguments))
    for number, argument in enumerate(ours):
        if argument == "--config" or argument.startswith("--config="):
            count = 2 if argument == "--config" else 1
            rest = [*arguments[:number], *arguments[number + count :]]
            return [*arguments[number : number + count], *rest]
    return list(arguments)
