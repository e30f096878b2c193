"""The agent of docs/doors.md works as it is written."""

import re
from pathlib import Path
from typing import Any

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.control.stop import StopSignal
from agent_server.gateway.gateway import Gateway
from tests.agent_server.fakes import Says
from tests.agent_server.gateway.conftest import MakeTask

PAGE = (Path(__file__).parents[3] / "docs" / "doors.md").read_text()


def test_the_agent_of_the_page_returns_its_trajectory(
    make_task: MakeTask, template: ChatTemplate, gateway: Gateway
) -> None:
    names: dict[str, Any] = {}
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (code,) = [program for program in programs if "class Asks" in program]
    exec(code, names)
    task = msgspec.structs.replace(make_task(Says(template, "1776")), gateway=gateway)
    trajectory = names["Asks"](task).run(StopSignal())
    assert template.text(trajectory.token_ids) == (
        "<|im_start|>user\n37*48<|im_end|>\n<|im_start|>assistant\n1776"
    )
