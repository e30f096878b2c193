"""The environment of docs/environments.md works as it is written."""

import re
from pathlib import Path
from typing import Any

from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Needs, declared_needs
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import SandboxNeeds
from rollyard.messages import Prompt
from tests.agent_server.fakes import said

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()


def test_the_environment_of_the_docs_asks_reacts_and_grades(sandboxes: Bubblewrap) -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)
    environment = InThread(names["Capitals"])
    sandbox = sandboxes.open(SandboxNeeds())
    try:
        row = {"data_source": "capitals", "country": "France", "capital": "Paris"}
        asked = environment.start(Prompt(prompt_id="row", instance=row), sandbox)
    finally:
        sandbox.close()
    assert [message.content for message in asked.messages] == ["The capital of France?"]
    assert environment.step(said("It is Paris.")).done
    assert environment.grade().reward == 1.0
    assert declared_needs(names["Capitals"]) == Needs()
    assert declared_needs(names["Repository"]).tags == ("h100",)
