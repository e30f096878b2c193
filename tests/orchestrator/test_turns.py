import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from orchestrator.collector import Collector
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.trainers import Trainers
from orchestrator.turns import SECONDS_BETWEEN, Turns
from rollyard.messages import AgentServer, RunSettings, Trainer

WATCHERS = 5
SECONDS = 1.5


def answers(ask: Callable[[], object], watchers: int, seconds: float) -> int:
    """Given to so many who ask again as soon as they are answered."""
    over = threading.Event()

    def watch() -> int:
        given = 0
        while not over.is_set():
            ask()
            given += 1
        return given

    with ThreadPoolExecutor(watchers) as threads:
        watching = [threads.submit(watch) for _ in range(watchers)]
        over.wait(seconds)
        over.set()
        return sum(each.result(30) for each in watching)


def test_those_who_watch_a_run_are_answered_twice_a_second_however_often_they_ask() -> None:
    turns, began = Turns(), time.monotonic()
    given = answers(lambda: turns.wait("train", 60.0), WATCHERS, SECONDS)
    most = 1 + (time.monotonic() - began) / SECONDS_BETWEEN
    assert WATCHERS <= given <= WATCHERS * most


def test_a_turn_of_one_run_keeps_nobody_waiting_who_watches_another() -> None:
    turns, began = Turns(), time.monotonic()
    for number in range(100):
        turns.wait(f"run-{number}", 60.0)
    assert time.monotonic() - began < 100 * SECONDS_BETWEEN


def test_nobody_waits_longer_for_a_turn_than_asked() -> None:
    turns = Turns()
    given = 0
    began = time.monotonic()
    while time.monotonic() - began < SECONDS_BETWEEN / 2:
        turns.wait("train", 0.0)
        given += 1
    assert given > 2


def test_a_trainer_takes_no_turns_and_those_who_watch_its_run_do(
    patient_queues: Queues, server: AgentServer
) -> None:
    queues = patient_queues
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    queues.servers.register(server)
    trainers = Trainers(queues)
    epoch = trainers.claim_run("train", Trainer(trainer_id="t", host="h", pid=1)).epoch
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    Collector(queues.events, queues.runs, lambda _: None).collect("train")
    assert trainers.run_status("train").prompts_wanted
    watched = answers(lambda: trainers.run_status("train", wait_seconds=60.0), 1, SECONDS)
    driven = answers(
        lambda: trainers.run_status("train", wait_seconds=60.0, epoch=epoch), 1, SECONDS
    )
    assert driven > watched
