"""Who a caller is and what it may do, decided without HTTP."""

import hmac

import pytest
from flask import Flask

from rollyard.errors import Forbidden, Unauthorized
from rollyard.tokens import Role, parse_tokens
from serving.access import decide
from serving.api import new_app

TOKENS = parse_tokens(
    "read the-old-read-token\nread the-new-read-token\nworker the-worker-token", "the test"
)


def test_both_live_tokens_of_a_role_are_good() -> None:
    for token in ("the-old-read-token", "the-new-read-token"):
        assert decide(TOKENS, f"Bearer {token}", {Role.READ}).role is Role.READ
    assert decide(TOKENS, "bearer the-new-read-token ", {Role.READ}).role is Role.READ


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic dGhlOnRva2Vu",
        "the-new-read-token",
        "Bearer the-new-read-toke",
        "Bearer the-new-read-token-and-more",
        "Bearer THE-NEW-READ-TOKEN",
        "Bearer \u00e9\u00e8\ud800",
    ],
)
def test_anything_else_is_nobody(header: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        decide(TOKENS, header, {Role.READ})
    assert "the-new-read-token" not in str(refused.value)


def test_another_role_is_told_which_one_it_takes() -> None:
    with pytest.raises(Forbidden, match="role read may not do this; it takes admin or worker"):
        decide(TOKENS, "Bearer the-new-read-token", {Role.ADMIN, Role.WORKER})


def test_every_live_token_is_compared_in_constant_time_wherever_the_match_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    really = hmac.compare_digest

    def counted(shown: bytes, token: bytes) -> bool:
        compared.append(token)
        return really(shown, token)

    monkeypatch.setattr("serving.access.hmac.compare_digest", counted)
    for token in ("the-worker-token", "the-old-read-token", "unknown"):
        compared.clear()
        try:
            decide(TOKENS, f"Bearer {token}", {Role.READ, Role.WORKER})
        except Unauthorized:
            assert token == "unknown"
        assert len(compared) == 3


def test_a_route_that_forgot_to_declare_itself_is_the_admins_alone() -> None:
    app = _forgetful("read the-new-read-token\nadmin the-one-admin-token")
    read = app.test_client().get("/x", headers={"Authorization": "Bearer the-new-read-token"})
    admin = app.test_client().get("/x", headers={"Authorization": "Bearer the-one-admin-token"})
    assert (read.status_code, admin.status_code) == (403, 200)


def _forgetful(tokens: str) -> Flask:
    app = new_app("forgetful", parse_tokens(tokens, "the test"))

    @app.get("/x")
    def undeclared() -> str:
        return "x"

    return app
