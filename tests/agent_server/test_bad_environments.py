"""A real agent server among bad environments: each fails alone, and nothing of it stays."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from agent_server.status import Status
from launch.free_ports import free_port
from launch.processes import Started
from rollyard.http import Peer
from rollyard.messages import Assignment, Blame, Limits, LostSlots, Outcome, Result
from tests.agent_server.fakes import OrchestratorForAgents, assign, hand, make_job
from tests.faults.scale import scaled
from tests.llm_fixtures import POLICY, ROOT, start_module
from tests.waiting import until

SLOTS = 16
BAD_JOBS, GOOD_JOBS = scaled(24, 50), 8
HANGING = ("hang", "fork", "flood", "block_signals")
FAILING = ("leave", "fail", "hoard")
KINDS = (*HANGING, *FAILING, "nest")
HANGING_LIMITS = Limits(max_turns=4, max_tokens=400, job_seconds=15)
"""Time for a first turn among sixteen on a busy machine: a job that runs out of it before it hangs
is cut short and graded, as any other."""
LIMITS = Limits(max_turns=4, max_tokens=400, job_seconds=60)
RESULT_SECONDS = 100.0
"""Above the grace of a job that hangs, on a busy machine."""


@pytest.fixture
def tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The agent server's directory for temporary files."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # pytest's own are closed to others
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that names the misbehaving environment, on the path of new processes."""
    information = tmp_path / "site" / "misbehaving-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[rollyard.environments]\nmisbehaves = tests.agent_server.misbehaving:Misbehaves\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{information.parent}:{ROOT}")


@pytest.fixture
def server(
    tmp_path: Path, tmp: Path, installed: None, llm: str, orchestrator_url: str
) -> Iterator[tuple[Started, Peer]]:
    port = free_port()
    started = start_module(
        [
            *("agent_server", "--port", str(port), "--server-id", "agent-1"),
            *("--orchestrator", orchestrator_url, "--llm-server", llm, "--model", str(POLICY)),
            *("--slots", str(SLOTS), "--ahead", "0", "--environment-memory-mib", "256"),
            *("--warm-sandboxes", "0"),  # so that all there is belongs to a job
        ],
        tmp_path / "agent.log",
    )
    yield started, Peer(f"http://127.0.0.1:{port}", name="agent server")
    started.stop()


@pytest.mark.timeout(300)
def test_bad_environments_fail_alone_and_leave_nothing_behind(
    server: tuple[Started, Peer], orchestrator: OrchestratorForAgents, tmp: Path
) -> None:
    started, agent = server
    orchestrator.registrations.get(timeout=60)
    before = traces(started.process.pid, tmp)
    jobs = mixed_jobs()
    waiting = list(jobs.values())
    orchestrator.assignments = waiting[SLOTS:]
    hand(agent, *waiting[:SLOTS])
    results: dict[str, Result] = {}
    while len(results) < len(jobs):
        result = orchestrator.results.get(timeout=RESULT_SECONDS)
        assert result.lease.job_id not in results
        results[result.lease.job_id] = result
    for job_id, result in results.items():
        check(job_id.partition("-")[0], result)
    status = agent.get("/status", Status)
    assert (status.busy, status.lost) == (0, LostSlots())

    def is_as_before() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return traces(started.process.pid, tmp) == before
        return False

    until("everything is as it was", is_as_before, 60)


def mixed_jobs() -> dict[str, Assignment]:
    """The good jobs stand among the bad ones."""
    kinds = [KINDS[number % len(KINDS)] for number in range(BAD_JOBS)]
    for number in range(GOOD_JOBS):
        kinds.insert(number * len(kinds) // GOOD_JOBS, "good")
    jobs = {}
    for number, kind in enumerate(kinds):
        job_id = f"{kind}-{number}"
        instance = {"data_source": "misbehaves", "wrong": kind, "at": "step"}
        if kind == "good":
            instance["at"] = "never"
        limits = HANGING_LIMITS if kind in HANGING else LIMITS
        jobs[job_id] = assign(make_job(job_id=job_id, instance=instance, limits=limits))
    return jobs


def check(kind: str, result: Result) -> None:
    """That a result is the one that its kind of job should have."""
    if kind == "good":
        assert (result.outcome, result.reward, result.error) == (Outcome.COMPLETED, 1.0, "")
    elif kind == "nest":  # its command is the sandbox's, and may be done in time
        assert result.outcome in (Outcome.COMPLETED, Outcome.INFRA_FAILED)
    else:
        assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, Blame.ROW), result.error


def traces(pid: int, tmp: Path) -> dict[str, object]:
    """What an agent server has made that is there now."""
    server = psutil.Process(pid)
    return {
        "processes": {process.pid for process in server.children(recursive=True)},
        "mounts": Path(f"/proc/{pid}/mounts").read_text(),
        "sandboxes": set(tmp.glob("*/sandbox-*")),
    }
