"""When connections are too many, the least useful one goes."""

import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from serving import crowd
from serving.connection import Connection
from serving.crowd import Crowd
from serving.descriptors import MAX_CONNECTIONS

Connect = Callable[..., Connection]
MOST = 4


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as opened:

        def connect(peer: str = "10.0.0.1") -> Connection:
            here, there = socket.socketpair()
            opened.enter_context(there)
            connection = Connection(None, here, (peer, 1), None)
            opened.enter_context(connection.sock)
            return connection

        yield connect


@pytest.fixture
def full(connect: Connect) -> tuple[Crowd[Connection], list[Connection]]:
    """A full crowd of one peer, and its members in the order in which they came."""
    here: Crowd[Connection] = Crowd(MOST)
    members = [connect() for _ in range(MOST)]
    for member in members:
        here.enter(member)
    return here, members


def rest(here: Crowd[Connection], connection: Connection) -> None:
    """The connection's request was answered, and it waits for the next."""
    here.work(connection)
    connection.answered = True
    here.wait(connection)


Full = tuple[Crowd[Connection], list[Connection]]


def test_while_there_is_room_nobody_goes(full: Full, connect: Connect) -> None:
    here, members = full
    here.leave(members[0])
    assert here.surplus(connect()) is None


def test_one_that_was_never_answered_goes_before_one_that_was(full: Full, connect: Connect) -> None:
    here, members = full
    for member in (members[2], members[0], members[1]):
        rest(here, member)
    assert here.surplus(connect()) is members[3]


def test_the_one_that_has_rested_longest_goes(full: Full, connect: Connect) -> None:
    here, members = full
    for member in (*reversed(members), members[3]):
        rest(here, member)
    assert here.surplus(connect()) is members[2]


def test_nobody_goes_whom_a_thread_works_for(full: Full, connect: Connect) -> None:
    here, members = full
    for member in members:
        here.work(member)
    newcomer = connect()
    assert here.surplus(newcomer) is newcomer


def test_the_peer_with_most_connections_loses_one(full: Full, connect: Connect) -> None:
    here, members = full
    here.leave(members[0])
    here.enter(connect("10.0.0.2"))
    assert here.surplus(connect("10.0.0.2")) is members[1]


def test_a_peer_that_has_too_many_loses_its_own(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "MAX_OF_ONE_PEER", 2)
    here: Crowd[Connection] = Crowd(100)
    others, own = [connect() for _ in range(2)], [connect("10.0.0.2") for _ in range(2)]
    for member in (*others, *own):
        here.enter(member)
    assert here.surplus(connect("10.0.0.2")) is own[0]


def connections_with(limits: tuple[int, int]) -> tuple[int, str]:
    """How many connections a process with these limits of open files allows, and what it says."""
    code = "from serving.descriptors import allow_connections; print(allow_connections())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
    )
    *said, number = done.stdout.splitlines()
    return int(number), " ".join(said)


def test_the_limit_of_open_files_is_raised_to_what_is_wanted() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert connections_with((256, hard)) == (MAX_CONNECTIONS, "")


def test_a_low_limit_of_open_files_is_said_and_kept_to() -> None:
    connections, said = connections_with((256, 3000))
    assert connections < 3000
    assert "raise the hard limit of open files" in said
