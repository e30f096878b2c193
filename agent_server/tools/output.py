"""The end of a command as a policy reads it: output of bounded length, and notes in brackets."""

from agent_server.sandbox.protocol import CommandResult

_SILENT = "[no output]"


def describe(result: CommandResult, *, deadline_seconds: float, max_characters: int) -> str:
    """The output of a command, and what else the policy needs to know of its end."""
    output = shorten(result.output, max_characters).removesuffix("\n")
    return "\n".join([*([output] if output else []), *_notes(result, deadline_seconds)]) or _SILENT


def shorten(text: str, max_characters: int) -> str:
    """The text, with a note in place of its middle if it is longer than `max_characters`."""
    if len(text) <= max_characters:
        return text
    head = max_characters // 2
    tail = max_characters - head
    note = f"[... {len(text) - max_characters:,} characters left out ...]"
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"


def _notes(result: CommandResult, deadline_seconds: float) -> list[str]:
    notes = []
    if result.timed_out:
        notes.append(f"[stopped at the time limit of {deadline_seconds:g} s]")
    elif result.exit_code != 0:
        notes.append(f"[exit code {result.exit_code}]")
    if result.restarted:
        notes.append(
            "[the bash session began anew: its directory, variables and background processes are "
            "gone]"
        )
    return notes
