"""A table of what becomes of chat templates: python -m tests.agent_server.templates DIRECTORY

Each file *.jinja is tried on a tokenizer of bytes, each directory with a tokenizer.json as a model.
"""

import argparse
import logging
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import structlog
from rich.console import Console
from rich.table import Table

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.rewriting import Rewriting
from rollyard.errors import InvalidMessage
from tests.agent_server.templates.byte_tokenizer import template_of
from tests.agent_server.templates.rehearsal import rehearse


class Verdict(NamedTuple):
    name: str
    verdict: str
    """`served`, `split` or `refused`."""
    why: str


def judged(path: Path) -> Verdict:
    """What becomes of a template, and of a conversation with it."""
    name = path.name.removesuffix(".jinja")
    try:
        template = ChatTemplate.load(path) if path.is_dir() else template_of(path.read_text())
        trajectory, _ = rehearse(template)
    except InvalidMessage as error:
        return Verdict(name, "refused", error.message)
    split = len(trajectory.sequences) > 1
    return Verdict(name, "split" if split else "served", "; ".join(_remarks(template)))


def _remarks(template: ChatTemplate) -> list[str]:
    traits = template.traits
    rewriting = [
        f"{role} rewrites {what.name.lower()}"
        for (role, with_tools), what in traits.rewriting.items()
        if with_tools and what is not Rewriting.NOTHING
    ]
    remarks = {
        f"also stops at {', '.join(traits.ends.unnamed)}": bool(traits.ends.unnamed),
        "tools speak as the user": traits.form.tool_role == "user",
        "no system role": not traits.form.system_role,
        "calls as text": traits.form.arguments_as_text,
        "no structured calls": not traits.form.takes_calls,
        "short ids": traits.form.short_ids,
        "tools in the system message": not traits.tells_of_tools,
    }
    return [*rewriting, *(remark for remark, holds in remarks.items() if holds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    models = [file.parent for file in directory.glob("*/tokenizer.json")]
    verdicts = [judged(path) for path in sorted([*directory.rglob("*.jinja"), *models])]
    table = Table("template", "verdict", "why")
    for verdict in verdicts:
        table.add_row(*verdict)
    console = Console()
    console.print(table)
    console.print(dict(Counter(each.verdict for each in verdicts)), f"of {len(verdicts)}")


if __name__ == "__main__":
    main()
