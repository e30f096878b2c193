"""The operator's commands against a real orchestrator over HTTP; a whole check-up."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from flask import Response
from typer.testing import CliRunner, Result

from launch.commands import app
from launch.doctor.check import CheckVerdict
from launch.doctor.queues import run_checks, storage_checks
from launch.doctor.servers import server_checks
from launch.vllm_environment import find_vllm
from orchestrator.app import create_app
from orchestrator.events import BatchRequested
from orchestrator.queues import Queues
from orchestrator.service import Orchestrator
from rollyard import Client
from rollyard.errors import LaunchError, PromptsExhausted, QueueUnavailable
from rollyard.messages import (
    AgentServer,
    Checkup,
    Counters,
    FleetStatus,
    Heartbeat,
    LLMEndpoint,
    LogprobKind,
    LostSlots,
    Prompt,
    RunSettings,
    Share,
    Storage,
)
from serving.api import new_app
from tests.launch.test_up import rollyard
from tests.orchestrator.fake_agents import fake_agent
from tests.queue_fixtures import QueueMaker
from tests.serving_threads import served


@pytest.fixture(autouse=True)
def unconfigured_logs() -> Iterator[None]:
    """The doctor configures the logs of its process, which here is that of other tests."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


class OperatedQueues:
    def __init__(self, queues: Queues, url: str) -> None:
        self.queues = queues
        self.url = url

    def ask(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--url", self.url])

    def ask_json(self, *arguments: str) -> Any:
        answer = self.ask(*arguments, "--json")
        assert answer.exit_code == 0, answer.output
        return only_json(answer)


def only_json(answer: Result) -> Any:
    """What the command said: the orchestrator logs to the same stdout here."""
    (line,) = (line for line in answer.stdout.splitlines() if line.startswith("{"))
    return json.loads(line)


@pytest.fixture
def deployment(make_queues: QueueMaker) -> Iterator[OperatedQueues]:
    """A Run of two queued Jobs, and one agent server that does not listen, which is not noticed."""
    queues = make_queues(Queues, lease_seconds=600.0)
    queues.runs.create(RunSettings(run_id="train", group_size=2))
    orchestrator = Orchestrator(queues)
    with served(create_app(orchestrator)) as url:
        queues.servers.register(
            AgentServer(
                server_id="agent-0", url="http://127.0.0.1:9", slots=2, environments=("arithmetic",)
            )
        )
        queues.tasks.submit(
            "train", [Prompt(prompt_id="p0", instance={"data_source": "arithmetic"})]
        )
        yield OperatedQueues(queues, url)
    orchestrator.close()


def test_jobs_are_listed_for_people_and_for_scripts(deployment: OperatedQueues) -> None:
    assert "train/p0/1" in deployment.ask("jobs").stdout
    found = deployment.ask_json("jobs", "--run", "train", "--state", "queued", "--limit", "1")
    assert [job["job_id"] for job in found["jobs"]] == ["train/p0/0"]


def test_the_status_names_the_dialect_of_each_llm_server_and_who_asks_it(
    deployment: OperatedQueues,
) -> None:
    endpoint = LLMEndpoint(
        url="http://10.0.0.1:8000", dialect="sglang", logprobs=LogprobKind.TEMPERED
    )
    for name in ("agent-1", "agent-2"):
        deployment.queues.servers.register(
            AgentServer(
                server_id=name,
                url="http://127.0.0.1:9",
                slots=1,
                environments=(),
                llm_servers=(endpoint,),
            )
        )
    line = "http://10.0.0.1:8000\tsglang\ttempered\tagent-1, agent-2"
    assert line in deployment.ask("status").stdout.splitlines()
    servers = deployment.ask_json("status")["servers"]
    assert servers[-1]["llm_servers"] == [msgspec.to_builtins(endpoint)]


def test_groups_that_were_filtered_are_listed_by_number_and_reason(
    deployment: OperatedQueues,
) -> None:
    assert deployment.ask_json("jobs")["gone"] == []
    with fake_agent(deployment.url, lambda job: 0.0, server_id="agent-1"):
        rows = ({"data_source": "arithmetic", "number": number} for number in range(3))
        run = Client(deployment.url).run(rows, run_id="dapo", group_size=2)
        with pytest.raises(PromptsExhausted, match="3 groups of this run taught nothing"):
            run.rollout(1)
        run.finish()
    (gone,) = deployment.ask_json("jobs", "--all")["gone"]
    assert (gone["run_id"], gone["fate"], gone["groups"]) == ("dapo", "filtered", 3)
    assert "by the criterion reward_spread" in deployment.ask("jobs", "--all").stdout
    assert deployment.ask_json("jobs", "--all", "--state", "accepted")["gone"] == []


def test_runs_are_listed_with_what_their_last_batch_cost_and_preferred(
    deployment: OperatedQueues,
) -> None:
    with fake_agent(deployment.url, lambda job: float(job.member), server_id="agent-1"):
        rows = ({"data_source": "arithmetic", "number": number} for number in range(4))
        run = Client(deployment.url).run(rows, run_id="short", group_size=2)
        run.ack(run.rollout(2))
    shown = deployment.ask("runs").stdout
    assert all(name in shown for name in ("train", "short", "0: 4"))
    reports = {each["run_id"]: each["last_report"] for each in deployment.ask_json("runs")["runs"]}
    assert reports["train"] is None
    assert reports["short"]["bias"]["trajectories"] == 4


def test_servers_are_listed_and_drained(deployment: OperatedQueues) -> None:
    assert "serving" in deployment.ask("servers").stdout
    assert "agent-0 gets no more jobs" in deployment.ask("drain", "agent-0").stdout
    (server,) = deployment.ask_json("servers")["servers"]
    assert server["condition"]["state"] == "draining"


def test_why_is_one_sentence(deployment: OperatedQueues) -> None:
    answer = deployment.ask("why", "train/p0/0").stdout
    assert answer == "its run is held: the trainer has not requested a batch\n"
    assert deployment.ask_json("why", "train") == {
        "id": "train",
        "reason": "the trainer has not requested a batch",
    }


def test_a_job_is_cancelled_with_its_group(deployment: OperatedQueues) -> None:
    assert deployment.ask("cancel", "train/p0/0").exit_code == 0
    deployment.queues.events.tell("train", BatchRequested(batch_id="b", requested_batch_size=1))
    for _ in range(100):
        if deployment.queues.runs.read("train").counters.groups_cancelled:
            break
        deployment.queues.runs.wait_for_news("train", 0.1)
    assert deployment.queues.runs.read("train").counters.jobs_dropped == 2


def test_a_closed_run_leaves_the_lists_and_is_forgotten_for_good(
    deployment: OperatedQueues,
) -> None:
    refused = deployment.ask("forget", "train")
    assert "run 'train' is not closed" in str(refused.exception)
    assert (
        deployment.ask("close", "train").stdout == "train is closed: nothing of it will run again\n"
    )
    for command in ("runs", "status"):
        assert deployment.ask_json(command)["runs"] == []
        (run,) = deployment.ask_json(command, "--all")["runs"]
        assert (run["run_id"], run["closed"]) == ("train", True)
    assert deployment.ask("forget", "train").stdout == "train is forgotten\n"
    assert deployment.ask_json("runs", "--all") == {"runs": []}
    assert "there is no run 'train'" in str(deployment.ask("forget", "train").exception)


def test_a_run_is_given_a_share_and_what_is_not_said_stays(deployment: OperatedQueues) -> None:
    def share(*options: str) -> str:
        return deployment.ask("share", "train", *options).stdout

    assert share("--weight", "2.5") == "train has weight 2.5, and may hold any number of slots\n"
    assert share("--max-slots", "3") == "train has weight 2.5, and may hold at most 3 slots\n"
    (run,) = deployment.ask_json("runs")["runs"]
    assert run["share"] == {"weight": 2.5, "max_slots": 3}
    assert share("--weight", "1", "--unlimited") == (
        "train has weight 1, and may hold any number of slots\n"
    )
    assert deployment.queues.runs.read("train").share == Share()


@pytest.mark.parametrize("options", [("--unlimited", "--max-slots", "3"), ("--weight", "-1")])
def test_a_share_that_means_nothing_is_bad_usage(
    deployment: OperatedQueues, options: tuple[str, ...]
) -> None:
    assert deployment.ask("share", "train", *options).exit_code == 2


def test_dead_jobs_of_a_closed_run_are_no_trouble(deployment: OperatedQueues) -> None:
    status = Client(deployment.url).status()
    (run,) = status.runs
    dead = msgspec.structs.replace(run, counters=Counters(jobs_submitted=1, jobs_dead=1))
    checkup = Checkup(storage=Storage(kind="redis"), stray_leases=(), events_waiting={})
    for closed, verdict in ((False, CheckVerdict.FAILED), (True, CheckVerdict.OK)):
        runs = (msgspec.structs.replace(dead, closed=closed),)
        checks = run_checks(msgspec.structs.replace(status, runs=runs), checkup)
        assert {check.name: check.verdict for check in checks}["dead jobs"] is verdict


def test_the_dead_are_listed(deployment: OperatedQueues) -> None:
    assert deployment.ask_json("dead", "--run", "train") == {"jobs": []}
    assert deployment.ask("dead").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("requeue", "train/p0/0"), "job 'train/p0/0' is not among the dead; list them with"),
        (("why", "nothing"), "nothing that waits is called 'nothing'; name a run"),
        (("drain", "agent-7"), "no agent server 'agent-7'; list them with"),
        (("dismiss", "llm-7"), "no LLM node 'llm-7'; list them with"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_one_sentence_and_exit_code_1(
    deployment: OperatedQueues, arguments: tuple[str, ...], sentence: str
) -> None:
    answer = rollyard(*arguments, "--url", deployment.url)
    assert answer.returncode == 1
    assert sentence in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command", ["why", "show", "cancel", "requeue", "share", "close", "forget", "drain", "dismiss"]
)
def test_an_empty_name_is_bad_usage(deployment: OperatedQueues, command: str) -> None:
    """A shell variable that is not set becomes one."""
    answer = deployment.ask(command, "")
    assert answer.exit_code == 2
    assert "is empty" in answer.stderr


def test_bad_usage_is_exit_code_2(deployment: OperatedQueues) -> None:
    assert deployment.ask("jobs", "--state", "lost").exit_code == 2
    assert deployment.ask("drain").exit_code == 2


def test_the_doctor_finds_what_is_wrong_and_what_to_do(deployment: OperatedQueues) -> None:
    answer = deployment.ask("doctor", "--json", "--llm-python", "/no/python")
    assert answer.exit_code == 1
    checks = {check["name"]: check for check in only_json(answer)["checks"]}
    assert len(checks) >= 20
    assert checks["python"]["verdict"] == "ok"
    assert checks["invariant"]["verdict"] == "ok"
    assert "agent-0: no answer at" in checks["agent servers ready"]["finding"]
    assert checks["vLLM environment"]["verdict"] == "failed"
    assert all(bool(c["fix"]) == (c["verdict"] == "failed") for c in checks.values())


def test_slots_that_a_server_lost_are_shown_with_the_reason(deployment: OperatedQueues) -> None:
    reason = "1 of 2 slots are held by attempts that ignore their end"
    lost = LostSlots(count=1, reason=reason)
    deployment.queues.servers.heartbeat(Heartbeat(server_id="agent-0", leases=(), lost=lost))
    assert reason in deployment.ask("why", "agent-0").stdout
    (server,) = deployment.ask_json("servers")["servers"]
    assert server["condition"]["lost"] == {"count": 1, "reason": reason}
    assert "1 lost" in deployment.ask("servers").stdout
    checks = {
        check["name"]: check for check in only_json(deployment.ask("doctor", "--json"))["checks"]
    }
    assert checks["slots"]["finding"] == f"1 lost some: agent-0: {reason}"


def test_the_doctor_says_when_there_is_no_orchestrator(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["doctor", "--url", "http://127.0.0.1:9", "--json"])
    assert answer.exit_code == 1
    checks = {check["name"]: check for check in json.loads(answer.stdout)["checks"]}
    assert checks["orchestrator"]["verdict"] == "failed"
    assert checks["invariant"]["verdict"] == "skipped"
    assert len(checks) >= 20


def test_the_doctor_s_cure_for_a_stopped_redis_is_not_another_orchestrator() -> None:
    app_without_redis = new_app("orchestrator")

    @app_without_redis.get("/status")
    def status() -> Response:
        raise QueueUnavailable("Redis does not do its work", fix="is it running?")

    with served(app_without_redis) as url:
        answer = CliRunner().invoke(app, ["doctor", "--url", url, "--json"])
    checks = {check["name"]: check for check in only_json(answer)["checks"]}
    assert checks["orchestrator"]["finding"] == "Redis does not do its work"
    assert checks["orchestrator"]["fix"] == "is it running?"


def test_the_doctor_takes_no_other_file_for_a_python_with_vllm() -> None:
    with pytest.raises(LaunchError, match="/bin/true is not a Python interpreter"):
        find_vllm(Path("/bin/true"))
    with pytest.raises(LaunchError, match="no vLLM environment"):
        find_vllm(Path(sys.executable))


@pytest.mark.parametrize(
    ("storage", "name"),
    [
        (Storage(kind="redis", version="6.2.1"), "redis version"),
        (Storage(kind="redis", appendonly="no"), "redis appendonly"),
        (Storage(kind="redis", appendfsync="everysec"), "redis appendfsync"),
        (Storage(kind="redis", eviction="allkeys-lru"), "redis eviction"),
        (Storage(kind="redis", used_bytes=9, max_bytes=10), "redis memory"),
        (Storage(kind="redis", round_trip_seconds=1.0), "redis round trip"),
        (Storage(kind="redis", at=0.0), "clock"),
    ],
)
def test_a_store_that_may_lose_work_fails_its_check(storage: Storage, name: str) -> None:
    (found,) = [check for check in storage_checks(storage) if check.name == name]
    assert found.verdict is CheckVerdict.FAILED
    assert found.fix


def test_jobs_that_do_not_add_up_stray_leases_and_a_slow_collector_are_found(
    deployment: OperatedQueues,
) -> None:
    status = deployment.queues.runs.read("train")
    run = FleetStatus(runs=(), servers=(), llm_nodes=())
    checkup = Checkup(
        storage=Storage(kind="memory"), stray_leases=("a",), events_waiting={"train": 5000}
    )
    failed = {c.name for c in run_checks(run, checkup) if c.verdict is CheckVerdict.FAILED}
    assert failed == {"leases", "collector"}
    assert status.counters.jobs_submitted == 2


def test_a_deployment_without_servers_fails_its_checks() -> None:
    nobody = FleetStatus(runs=(), servers=(), llm_nodes=())
    failed = {c.name for c in server_checks(nobody) if c.verdict is CheckVerdict.FAILED}
    assert failed == {"agent servers", "LLM nodes"}
