"""Environments of other packages: whatever their code does, it fails alone and leaves nothing."""

import os
import resource
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path

import psutil
import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.environments.hosted.process import HostUnavailable
from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import (
    EnvironmentFailed,
    EnvironmentKilled,
    Episode,
    Needs,
)
from agent_server.jobs.runner import RunnerSettings
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import (
    CommandResult,
    OpenSandbox,
    Sandbox,
    SandboxNeeds,
    SandboxUnavailable,
)
from rollyard.errors import LaunchError
from rollyard.messages import Blame, Limits, Outcome, Prompt
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    SandboxOfNothing,
    Says,
    assign,
    make_job,
    said,
)
from tests.agent_server.running import Start
from tests.waiting import until

POINT = EntryPoint("misbehaves", "tests.agent_server.misbehaving:Misbehaves", "")
SLOW_TO_IMPORT = """
from pathlib import Path
from tests.agent_server.misbehaving import Misbehaves
gate = Path(__file__).with_name("gate")
if gate.exists():
    gate.read_text()
"""
SETTINGS = ProcessLimits(data_bytes=256 << 20, processes=32)


@pytest.fixture(scope="module")
def host() -> Iterator[EnvironmentHost]:
    made = EnvironmentHost((POINT,), SETTINGS)
    yield made
    made.close()


@pytest.fixture
def episode(host: EnvironmentHost) -> Iterator[Episode]:
    begun = host.environments()["misbehaves"].make()
    yield begun
    begun.close()


def row(wrong: str = "", at: str = "") -> dict[str, str]:
    return {"data_source": "misbehaves", "wrong": wrong, "at": at}


def prompt(wrong: str = "", at: str = "") -> Prompt:
    return Prompt(prompt_id="row", instance=row(wrong, at))


def test_an_episode_goes_through_its_process(episode: Episode, sandboxes: Bubblewrap) -> None:
    sandbox = sandboxes.open(SandboxNeeds())
    (message,) = episode.start(prompt(), sandbox).messages
    assert message.content == "37*48"
    observation = episode.step(said("some text\n\U0001f600 é"))
    assert not observation.done
    assert observation.messages[0].content.startswith("some text\n")
    assert episode.step(said("bye")).done
    assert episode.grade().reward == 1.0
    sandbox.close()


@pytest.mark.parametrize("at", ["start", "step", "grade"])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("leave", "exited with status 7; it wrote last: the answer is in the stars"),
        ("exit", r"SystemExit in _exit \(misbehaving.py:[0-9]+\): enough"),
        ("fail", r"KeyError in _fail \(misbehaving.py:[0-9]+\): 'a bug'"),
        ("recurse", "RecursionError in _recurse"),
        ("crash", "was killed by SIGSEGV"),
        ("hoard", "MemoryError in _hoard"),
        ("break_off", "exited with status 7"),
        ("talk_nonsense", "spoilt its connection|answered with"),
    ],
)
def test_code_that_goes_wrong_fails_alone_and_is_described(
    episode: Episode, at: str, wrong: str, reason: str
) -> None:
    with pytest.raises(EnvironmentFailed, match=reason):
        play(episode, row(wrong, at), Announces())


def test_an_environment_whose_process_has_ended_fails_for_the_same_reason_ever_after(
    episode: Episode,
) -> None:
    episode.start(prompt("leave", "step"), Announces())
    for call in (lambda: episode.step(said("hello")), episode.grade):
        with pytest.raises(EnvironmentFailed, match="exited with status 7"):
            call()


@pytest.mark.parametrize(
    "wrong", ["hang", "hold_the_gil", "fork", "daemonise", "flood", "block_signals"]
)
def test_code_that_does_not_come_back_is_killed_with_all_that_it_started(
    host: EnvironmentHost, episode: Episode, wrong: str
) -> None:
    before = processes()
    failed, sandbox = threading.Event(), Announces()

    def begin() -> None:
        with pytest.raises(EnvironmentKilled):
            episode.start(prompt(wrong, "start"), sandbox)
        failed.set()

    threading.Thread(target=begin, daemon=True).start()
    assert sandbox.asked.wait(PATIENCE_SECONDS)
    many = {"fork": 16, "daemonise": 2}.get(wrong, 1)
    until("the environment goes wrong", lambda: len(processes() - before) >= many)
    episode.kill()
    assert failed.wait(PATIENCE_SECONDS)
    episode.close()
    until("all processes are reaped", lambda: processes() <= before)
    assert host.stuck == 0


def test_a_process_has_nothing_of_the_servers(
    episode: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLYARD_TOKEN", "hunter2")
    other = EnvironmentHost((POINT,), SETTINGS)
    with pytest.raises(EnvironmentFailed) as seen:
        other.environments()["misbehaves"].make().start(prompt("look_around", "start"), Announces())
    other.close()
    assert "PATH" in seen.value.message
    assert "TOKEN" not in seen.value.message


def test_a_failing_sandbox_is_not_laid_at_the_row(episode: Episode) -> None:
    class Broken(SandboxOfNothing):
        def run(
            self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
        ) -> CommandResult:
            raise SandboxUnavailable("no namespaces left")

    episode.start(prompt(), Broken())
    with pytest.raises(SandboxUnavailable, match="no namespaces left"):
        episode.step(said("hello"))


def test_a_server_too_slow_to_begin_an_environment_is_not_laid_at_the_row(
    episode: Episode,
) -> None:
    episode.kill()
    with pytest.raises(HostUnavailable, match="stopped before it began"):
        episode.start(prompt(), SandboxOfNothing())


def test_environments_that_were_killed_from_outside_are_started_again() -> None:
    before = processes()
    host = EnvironmentHost((POINT,), SETTINGS)
    make = host.environments()["misbehaves"].make
    first = make()
    first.start(prompt(), SandboxOfNothing())
    (zygote,) = (each for each in psutil.Process().children() if each.pid not in before)
    zygote.kill()
    until("the environment ends with it", lambda: fails_for_want_of_its_host(first))
    first.close()
    until("the environments start again", lambda: starts(make()))
    host.close()
    until("all processes end", lambda: processes() <= before)


def test_what_lives_on_is_told_while_the_environments_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW_TO_IMPORT)
    monkeypatch.syspath_prepend(tmp_path)
    before = processes()
    host = EnvironmentHost((EntryPoint("slow", "slow_to_import:Misbehaves", ""),), SETTINGS)
    make = host.environments()["slow"].make
    first = make()
    first.start(prompt(), SandboxOfNothing())
    (zygote,) = (each for each in psutil.Process().children() if each.pid not in before)
    zygote.kill()
    until("the environment ends with its zygote", lambda: fails_for_want_of_its_host(first))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with ThreadPoolExecutor(2) as threads:
        started = threads.submit(starts, make())
        with gate.open("w"):  # the other end is open, too: the import has begun
            assert threads.submit(lambda: host.stuck).result(PATIENCE_SECONDS) == 0
            assert not started.done()
        assert started.result(PATIENCE_SECONDS)
    first.close()
    host.close()


def test_a_machine_without_room_for_a_process_ends_no_other() -> None:
    before = processes()
    host = EnvironmentHost((POINT,), SETTINGS)
    make = host.environments()["misbehaves"].make
    first, second, third = make(), make(), make()
    first.start(prompt(), SandboxOfNothing())
    (guard,) = (each for each in psutil.Process().children() if each.pid not in before)
    (zygote,) = guard.children()
    usual = zygote.rlimit(resource.RLIMIT_NPROC)
    zygote.rlimit(resource.RLIMIT_NPROC, (1, usual[1]))
    with pytest.raises(HostUnavailable, match="cannot start a process"):
        second.start(prompt(), SandboxOfNothing())
    zygote.rlimit(resource.RLIMIT_NPROC, usual)
    third.start(prompt(), SandboxOfNothing())
    assert first.grade() == third.grade()
    for episode in (first, second, third):
        episode.close()
    host.close()
    until("all processes end", lambda: processes() <= before)


def fails_for_want_of_its_host(episode: Episode) -> bool:
    try:
        episode.grade()
    except HostUnavailable:
        return True
    return False


def starts(episode: Episode) -> bool:
    try:
        episode.start(prompt(), SandboxOfNothing())
    except HostUnavailable:
        return False
    finally:
        episode.close()
    return True


def test_nothing_lives_on_when_the_host_closes() -> None:
    before = processes()
    host = EnvironmentHost((POINT,), SETTINGS)
    episodes = [host.environments()["misbehaves"].make() for _ in range(3)]
    for episode in episodes:
        episode.start(prompt(), SandboxOfNothing())
    host.close()
    until("all processes end", lambda: processes() <= before)
    for episode in episodes:
        with pytest.raises(HostUnavailable):
            episode.step(said("hello"))
        episode.close()


def test_what_an_environment_needs_is_known_to_the_server(host: EnvironmentHost) -> None:
    assert host.environments()["misbehaves"].needs == Needs(sandbox=SandboxNeeds())


def test_an_environment_of_another_package_without_a_sandbox_is_told_what_to_say(
    episode: Episode,
) -> None:
    episode.start(prompt(), NoSandbox())
    with pytest.raises(EnvironmentFailed, match="says that it needs no sandbox"):
        episode.step(said("hello"))


@pytest.mark.parametrize(
    "value",
    [
        "no.such.module:Thing",
        "tests.agent_server.misbehaving:Absent",
        "tests.agent_server.misbehaving:NeedsInWords",
        "antigravity.x:y",
    ],
)
def test_an_environment_that_cannot_be_imported_is_found_out_at_the_start(value: str) -> None:
    with pytest.raises(LaunchError, match="cannot load the environments: 'broken' from"):
        EnvironmentHost((EntryPoint("broken", value, ""),), SETTINGS)


@pytest.mark.parametrize(
    ("stage", "method"), [("init", "start"), ("run", "step"), ("eval", "grade")]
)
def test_a_stage_that_hangs_in_an_environment_fails_for_the_row_and_frees_its_slot(
    start: Start, template: ChatTemplate, host: EnvironmentHost, stage: str, method: str
) -> None:
    settings = RunnerSettings(slots=1, init_seconds=5, eval_seconds=5, grace_seconds=5)
    running = start(
        Says(template, "bye", "bye"),
        sandboxes=Only(Announces()),
        hosted=host.environments(),
        settings=settings,
    )
    limits = Limits(max_turns=2, max_tokens=400, job_seconds=3)
    bad = make_job(job_id="bad", instance=row("hang", method), limits=limits)
    running.runner.accept(assign(bad))
    result = running.result()
    assert (result.outcome, result.blame) == (Outcome.INFRA_FAILED, Blame.ROW)
    assert f"{stage} did not end within" in result.error
    running.runner.accept(assign(make_job(job_id="good", instance=row())))
    assert running.result().outcome is Outcome.COMPLETED
    assert running.runner.lost().count == 0


@pytest.mark.parametrize("method", ["start", "step", "grade"])
def test_a_job_whose_environment_hangs_is_cancelled_at_once(
    start: Start, template: ChatTemplate, host: EnvironmentHost, method: str
) -> None:
    assert host.stuck == 0
    before = processes()
    sandbox = Announces()
    running = start(Says(template, "bye"), sandboxes=Only(sandbox), hosted=host.environments())
    assignment = assign(make_job(instance=row("hang", method)))
    running.runner.accept(assignment)
    assert sandbox.asked.wait(PATIENCE_SECONDS)
    running.runner.cancel(assignment.lease)
    assert running.result().outcome is Outcome.CANCELLED
    assert running.runner.status("agent-1").busy == 0
    until("all processes end", lambda: processes() <= before)


class Only:
    """Opens the one sandbox."""

    def __init__(self, sandbox: OpenSandbox) -> None:
        self._sandbox = sandbox

    def open(self, needs: SandboxNeeds) -> OpenSandbox:
        return self._sandbox


class Announces(SandboxOfNothing):
    """A sandbox that says when it is first asked for something, and does nothing."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def run(
        self, argv: Sequence[str], *, stdin: str = "", deadline_seconds: float
    ) -> CommandResult:
        self.asked.set()
        return CommandResult(exit_code=0, output="")


def play(episode: Episode, instance: dict[str, str], sandbox: Sandbox) -> None:
    episode.start(Prompt(prompt_id="row", instance=instance), sandbox)
    episode.step(said("bye"))
    episode.grade()


def processes() -> set[int]:
    """Everything that descends from this process."""
    return {child.pid for child in psutil.Process().children(recursive=True)}
