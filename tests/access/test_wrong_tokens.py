"""Whoever tries tokens is seen in the log, and not for long."""

import pytest
from werkzeug.test import TestResponse

from rollyard.errors import Unavailable
from rollyard.tokens import parse_tokens
from serving.api import new_app
from serving.wrong_tokens import MAX_WRONG_TOKENS, MINUTE_SECONDS, WrongTokens

STRANGER = "10.1.2.3"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(count: int, address: str = STRANGER) -> tuple[WrongTokens, Clock]:
    clock = Clock()
    wrong = WrongTokens(clock)
    for _ in range(count):
        wrong.note(address, "/status")
    return wrong, clock


def test_an_address_that_shows_too_many_wrong_tokens_is_refused_for_the_minute() -> None:
    wrong, clock = shown(MAX_WRONG_TOKENS)
    with pytest.raises(Unavailable, match=f"{MAX_WRONG_TOKENS} wrong tokens came from {STRANGER}"):
        wrong.check(STRANGER)
    wrong.check("10.1.2.4")
    clock.now += MINUTE_SECONDS
    wrong.check(STRANGER)


def test_a_few_wrong_tokens_are_no_reason_to_refuse_the_right_one() -> None:
    shown(MAX_WRONG_TOKENS - 1)[0].check(STRANGER)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", ""])
def test_this_machine_is_never_refused_as_a_whole(address: str) -> None:
    shown(MAX_WRONG_TOKENS, address)[0].check(address)


def test_the_log_tells_of_wrong_tokens_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    shown(50)
    assert capsys.readouterr().out.count("wrong_token") == 1


def test_a_service_notes_wrong_tokens_and_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    app = new_app("guarded", parse_tokens("read the-one-read-token", "the test"))
    app.add_url_rule("/x", "x", lambda: "x")
    caller = app.test_client()

    def ask(token: str) -> TestResponse:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return caller.get("/x", headers=headers, environ_base={"REMOTE_ADDR": STRANGER})

    assert ask("").status_code == 401
    assert "wrong_token" not in capsys.readouterr().out
    assert [ask("a-guess-at-the-token").status_code for _ in range(MAX_WRONG_TOKENS)][-1] == 401
    assert ask("the-one-read-token").status_code == 503
    told = capsys.readouterr().out
    assert told.count("wrong_token") == 2
    assert STRANGER in told
    assert "a-guess" not in told
