"""Which Redis and as whom: a password is read from a file, and shown nowhere."""

import argparse
from pathlib import Path

import pytest

from orchestrator.queues import Queues
from orchestrator.queues.address import RedisAddress, add_redis_options, redis_of
from rollyard.errors import LaunchError, QueueUnavailable


def address(*arguments: str) -> RedisAddress:
    parser = argparse.ArgumentParser()
    add_redis_options(parser)
    return redis_of(parser.parse_args(arguments))


def password_file(directory: Path, mode: int = 0o600) -> str:
    path = directory / "password"
    path.write_text("swordfish-in-a-file\n")
    path.chmod(mode)
    return str(path)


def test_the_password_comes_from_a_file_and_is_not_printed(tmp_path: Path) -> None:
    redis = address(
        *("--redis-url", "redis://orchestrator@db:6379/1"),
        *("--redis-password-file", password_file(tmp_path)),
        *("--redis-prefix", "rollyard:blue:"),
    )
    assert redis.password == "swordfish-in-a-file"
    assert redis.prefix == "rollyard:blue:"
    assert "swordfish" not in repr(redis)


def test_a_password_in_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(LaunchError, match="--redis-password-file") as refused:
        address("--redis-url", "redis://orchestrator:swordfish@db:6379")
    assert "swordfish" not in str(refused.value)


def test_a_password_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="not a file for its owner alone"):
        address(
            *("--redis-url", "redis://orchestrator@db"),
            *("--redis-password-file", password_file(tmp_path, 0o644)),
        )


@pytest.mark.parametrize(
    ("url", "prefix"), [("http://db", "r:"), ("redis://db", ""), ("redis://db", "*")]
)
def test_what_is_no_redis_or_no_prefix_is_refused(url: str, prefix: str) -> None:
    with pytest.raises(LaunchError, match="is n"):
        address("--redis-url", url, "--redis-prefix", prefix)


def test_the_user_of_the_tests_may_do_nothing_but_our_work(redis_url: str) -> None:
    elsewhere = Queues(redis_url, prefix="others:")
    with pytest.raises(QueueUnavailable, match=r"(?i)permission"):
        elsewhere.runs.ids()


def test_a_wrong_password_is_said_without_saying_it(redis_url: str) -> None:
    server = redis_url.rpartition("@")[2]
    stranger = Queues(f"redis://orchestrator@{server}", password="not-the-password")
    with pytest.raises(QueueUnavailable) as refused:
        stranger.runs.ids()
    assert "not-the-password" not in str(refused.value)


def test_the_password_beside_the_url_opens_the_door(redis_url: str) -> None:
    password, _, server = redis_url.removeprefix("redis://orchestrator:").partition("@")
    queues = Queues(f"redis://orchestrator@{server}", password=password, prefix="rollyard:door:")
    assert queues.runs.ids() == []
