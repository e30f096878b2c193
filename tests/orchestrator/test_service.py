"""The orchestrator as a whole: how it ends."""

import threading

import pytest

from orchestrator.dispatcher import Dispatcher
from orchestrator.events import BatchRequested, JobCancelled
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from rollyard.messages import AgentServer, Prompt, RunSettings


def test_an_event_that_comes_while_it_stops_does_not_look_like_a_failure(
    patient_queues: Queues, monkeypatch: pytest.MonkeyPatch, server: AgentServer
) -> None:
    exits: list[int] = []
    monkeypatch.setattr("orchestrator.service.os._exit", exits.append)
    monkeypatch.setattr(Dispatcher, "_deliver", lambda *_: None)  # its server just takes them
    queues, before = patient_queues, set(threading.enumerate())
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    orchestrator = Orchestrator(queues)
    (collector,) = [
        thread
        for thread in threading.enumerate()
        if thread.name == "Collector.run" and thread not in before
    ]
    queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    queues.tasks.submit("train", [Prompt(prompt_id="p", instance={"data_source": "arithmetic"})])
    queues.servers.register(server)
    while not queues.runs.read("train").counters.jobs_leased:
        queues.runs.wait_for_news("train", 5)
    orchestrator.close()
    # One of its Jobs is to be stopped, and nobody sends any more.
    queues.events.tell("train", JobCancelled(job_id="train/p/0"))
    collector.join(10)
    assert not collector.is_alive()
    assert exits == []
