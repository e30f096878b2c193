"""The environment of docs/environments.md works as it is written."""

import re
from pathlib import Path
from typing import Any

from agent_server.environments.protocol import Environment
from agent_server.sandbox.bubblewrap import Bubblewrap

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()


def test_the_environment_of_the_docs_asks_reacts_and_grades(sandboxes: Bubblewrap) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    environment: Environment = names["Capitals"]()
    sandbox = sandboxes.open()
    try:
        asked = environment.start({"country": "France", "capital": "Paris"}, sandbox)
    finally:
        sandbox.close()
    assert [message.content for message in asked] == ["The capital of France?"]
    assert environment.step("It is Paris.").done
    assert environment.grade() == 1.0
