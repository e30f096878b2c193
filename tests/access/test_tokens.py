"""Token files: made for their owner alone, refused when anyone else may read them."""

import os
import stat
from pathlib import Path

import pytest

from rollyard.errors import LaunchError
from rollyard.left_files import left_for_clients, left_token_file
from rollyard.tokens import (
    NO_TOKENS,
    Role,
    add_token,
    make_token_file,
    parse_tokens,
    read_tokens,
    tokens_for,
)

URL = "http://127.0.0.1:8005"
LINE = "admin 0123456789abcdef"


@pytest.fixture(autouse=True)
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLYARD_TOKEN_FILE", raising=False)
    monkeypatch.delenv("ROLLYARD_TOKENS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


def secret_file(directory: Path, text: str = LINE) -> Path:
    path = directory / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_fresh_file_has_one_long_token_of_each_role_for_its_owner_alone(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    make_token_file(tmp_path / "tokens")
    os.umask(old_mask)
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o600
    tokens = list(read_tokens(tmp_path / "tokens"))
    assert [each.role for each in tokens] == list(Role)
    assert len({each.token for each in tokens}) == 4
    assert all(len(each.token) >= 43 for each in tokens)


def test_the_tokens_of_a_deployment_survive_its_restart(tmp_path: Path) -> None:
    make_token_file(tmp_path / "tokens")
    before = (tmp_path / "tokens").read_text()
    make_token_file(tmp_path / "tokens")
    assert (tmp_path / "tokens").read_text() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path)
    path.chmod(mode)
    with pytest.raises(LaunchError, match=f"{path} is not a file for its owner alone"):
        read_tokens(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no token"),
        ("# none yet\n\n", "has no token"),
        ("root 0123456789abcdef", "line 1 of .* is not a role and a token"),
        ("# ours\nadmin short", "line 2 of"),
        ("admin 0123456789abcdef extra words", "line 1 of"),
        ("admin 0123456789abcdef a,,b", "line 1 of"),
        ("admin 0123456789abcdef a/b", "line 1 of"),
        ("worker 0123456789abcdef a", "services are of all"),
        (
            "".join(f"read {n}123456789abcdef b,a\n" for n in range(3)),
            "more than 2 tokens of role read for a, b",
        ),
        ("read 0123456789abcdef\nadmin 0123456789abcdef", "has one token twice"),
        ("".join(f"read {n}123456789abcdef\n" for n in range(3)), "more than 2 tokens of role"),
        ("admin 0123456789abcdef\u00e9", "it is not plain text"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_without_a_word_of_its_tokens(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(LaunchError, match=sentence) as refused:
        read_tokens(secret_file(tmp_path, text))
    assert "123456789abcdef" not in str(refused.value)
    assert "short" not in str(refused.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"cannot read the secrets in .*: No such file"):
        read_tokens(tmp_path / "nothing")


def test_tokens_are_never_printed() -> None:
    assert "0123456789abcdef" not in repr(parse_tokens(LINE, "x"))
    assert "0123456789abcdef" not in f"{parse_tokens(LINE, 'x')}"


def test_a_client_shows_the_token_that_may_do_most_and_a_service_the_workers() -> None:
    tokens = parse_tokens("read r123456789abcdef\nworker w123456789abcdef", "x")
    assert tokens.widest == "w123456789abcdef"
    tokens = parse_tokens("worker w123456789abcdef\nadmin a123456789abcdef", "x")
    assert (tokens.widest, tokens.for_services) == ("a123456789abcdef", "w123456789abcdef")
    assert (NO_TOKENS.widest, NO_TOKENS.for_services) == ("", "")


def test_a_token_for_some_runs_opens_these_and_comes_after_those_for_all() -> None:
    tokens = parse_tokens(f"{LINE} a,b\nread r123456789abcdef\nread s123456789abcdef a", "x")
    assert [sorted(each.runs) for each in tokens] == [[], ["a", "b"], ["a"]]
    assert tokens.widest == "r123456789abcdef"
    of_all, of_two, _ = tokens
    assert of_all.opens("c")
    assert (of_two.opens("b"), of_two.opens("c"), of_two.opens("")) == (True, False, False)
    assert "0123456789abcdef" not in repr(of_two)


def test_a_token_made_for_somebody_is_in_a_file_of_their_own_and_in_that_of_the_services(
    tmp_path: Path,
) -> None:
    service, bearer = secret_file(tmp_path), tmp_path / "theirs"
    add_token(Role.SUBMIT, ["b", "a"], service=service, bearer=bearer)
    (made,) = read_tokens(bearer)
    assert (made.role, made.runs) == (Role.SUBMIT, frozenset("ab"))
    assert made in read_tokens(service)
    assert read_tokens(service).widest == "0123456789abcdef"
    assert stat.S_IMODE(bearer.stat().st_mode) == stat.S_IMODE(service.stat().st_mode) == 0o600


def test_a_token_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    service, bearer = secret_file(tmp_path), tmp_path / "theirs"
    for role, runs in ((Role.WORKER, ["a"]), (Role.READ, ["a/b"])):
        with pytest.raises(LaunchError):
            add_token(role, runs, service=service, bearer=bearer)
    bearer.write_text("mine")
    with pytest.raises(LaunchError, match="is there already"):
        add_token(Role.READ, [], service=service, bearer=bearer)
    assert (service.read_text(), bearer.read_text()) == (LINE, "mine")


def test_a_client_finds_the_tokens_of_a_deployment_of_this_machine_while_it_is_up(
    tmp_path: Path,
) -> None:
    with left_for_clients(URL, secret_file(tmp_path)):
        assert tokens_for(URL + "/").widest == "0123456789abcdef"
        assert tokens_for("http://127.0.0.1:8006") is NO_TOKENS
    assert tokens_for(URL) is NO_TOKENS


def test_tokens_left_by_another_user_are_not_looked_at(tmp_path: Path) -> None:
    with left_for_clients(URL, secret_file(tmp_path)):
        left_token_file(URL).parent.chmod(0o777)
        assert tokens_for(URL) is NO_TOKENS


def test_tokens_are_not_left_where_others_may_write(tmp_path: Path) -> None:
    directory = left_token_file(URL).parent
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    with (
        pytest.raises(LaunchError, match="is not this user's alone"),
        left_for_clients(URL, secret_file(tmp_path)),
    ):
        pass


def test_the_environment_comes_before_what_a_deployment_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLYARD_TOKENS", "read inline-tokens-0123456789")
    with left_for_clients(URL, secret_file(tmp_path)):
        assert tokens_for(URL).widest == "inline-tokens-0123456789"
        monkeypatch.setenv("ROLLYARD_TOKEN_FILE", str(tmp_path / "tokens"))
        assert tokens_for(URL).widest == "0123456789abcdef"
