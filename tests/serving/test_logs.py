"""One record a line, as it was asked for, and no flood of the same."""

import json
import subprocess
import sys
import time

import pytest
import structlog

from launch.free_ports import free_port
from rollyard.messages import Lease
from serving.log_format import LogFormat
from serving.logs import FOLD_SECONDS, Folding, of_lease

EXAMPLE = """
import logging, structlog
from serving import logs
logs.configure("example", logs.LogFormat("{form}"))
log = structlog.get_logger()
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken", job_id="r/g/0", attempt=2)
for _ in range(1000):
    log.warning("away", reason="no answer")
for number in range(1000):
    try:
        ("a", "b")[number % 3]
    except IndexError:
        log.exception("no_such_place")
handler = logging.StreamHandler()
logs.write_alike([handler])
other = logging.getLogger("gunicorn.error")
other.addHandler(handler)
other.error("from a %s", "library")
"""


def lines(form: LogFormat) -> list[str]:
    command = [sys.executable, "-c", EXAMPLE.replace("{form}", form)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()


def test_as_json_every_line_is_a_record() -> None:
    broken, away, nowhere, foreign = map(json.loads, lines(LogFormat.JSON))
    assert (broken["event"], broken["service"], broken["level"]) == ("broken", "example", "error")
    assert (broken["job_id"], broken["attempt"]) == ("r/g/0", 2)
    assert "ZeroDivisionError" in broken["exception"]
    assert (away["event"], away["reason"]) == ("away", "no answer")
    assert "IndexError" in nowhere["exception"]
    assert (foreign["event"], foreign["service"]) == ("from a library", "example")
    assert all(record["timestamp"] for record in (broken, away, nowhere, foreign))


def test_for_people_warnings_and_errors_are_said_once_too() -> None:
    said = lines(LogFormat.TEXT)
    assert sum("away" in line for line in said) == 1
    assert sum("no_such_place" in line for line in said) == 1
    assert not any(line.startswith("{") for line in said)


@pytest.mark.parametrize("level", ["warning", "error", "critical"])
def test_what_goes_wrong_on_and_on_is_counted(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    fold = Folding()

    def say(**record: object) -> object:
        return fold(None, level, {"event": "away", **record})

    assert say(reason="a") == {"event": "away", "reason": "a"}
    assert say(reason="b") == {"event": "away", "reason": "b"}
    for _ in range(3):
        with pytest.raises(structlog.DropEvent):
            say(reason="a")
    now += FOLD_SECONDS
    assert say(reason="a") == {"event": "away", "reason": "a", "repeated": 3}
    now += FOLD_SECONDS
    assert say(reason="a") == {"event": "away", "reason": "a"}


def test_an_error_is_told_from_a_warning_and_from_an_error_of_another_kind() -> None:
    fold = Folding()
    for level, error in (("warning", KeyError(1)), ("error", KeyError(1)), ("error", OSError(1))):
        fold(None, level, {"event": "broken", "exc_info": error})
    for under_way in (ValueError(1), TypeError(1)):
        try:
            raise under_way
        except Exception:
            fold(None, "error", {"event": "broken", "exc_info": True})


def test_what_is_nothing_wrong_is_always_said() -> None:
    fold = Folding()
    for _ in range(2):
        assert fold(None, "info", {"event": "here"}) == {"event": "here"}


def test_a_lease_is_named_by_its_job_and_attempt() -> None:
    lease = Lease(job_id="r/g/0", attempt=3, server_id="a", slot="a#0")
    assert of_lease(lease) == {"job_id": "r/g/0", "attempt": 3}


def test_a_service_that_is_told_to_writes_json_alone() -> None:
    command = [
        *(sys.executable, "-m", "orchestrator", "--port", str(free_port())),
        *("--redis-url", "redis://127.0.0.1:9", "--log-format", "json"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            records = map(json.loads, process.stderr)
            record = next(each for each in records if "Listening at" in each["event"])
        finally:
            process.kill()
    assert record["service"] == "orchestrator"
