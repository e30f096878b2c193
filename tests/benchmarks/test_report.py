import json

import pytest

from benchmarks.machine import this_machine
from benchmarks.report import Goal, at_least, at_most, say


@pytest.mark.parametrize(
    ("goal", "ok"),
    [
        (at_least("speed", 2.0, 2), True),
        (at_least("speed", 1.99, 2), False),
        (at_most("wait", 1.0, 1), True),
        (at_most("wait", 1.01, 1), False),
    ],
)
def test_a_goal_says_whether_it_was_reached(goal: Goal, ok: bool) -> None:
    assert goal.ok is ok


def test_the_last_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    say("speed", this_machine(), [at_least("speed", 1.0, 2)], {"rates": [1.0]})
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["goals"] == [{"name": "speed", "value": 1.0, "goal": ">= 2", "ok": False}]
    assert said["machine"]["cores"] >= 1
