"""docs/tools.md holds as it is written."""

import re
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Task
from agent_server.agents.tool_calls.formats import OUR_FORMATS, choose_format
from agent_server.agents.tool_calls.parser import ResponseParser
from agent_server.agents.tool_loop import ToolLoop
from agent_server.control.stop import StopSignal
from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.environments.hosted.host import EnvironmentHost
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import Response
from agent_server.sandbox.bubblewrap import Bubblewrap
from agent_server.sandbox.protocol import Sandbox, SandboxNeeds
from agent_server.tools.bash import Bash
from agent_server.tools.submit import Submit
from agent_server.tools.toolbox import Toolbox
from rollyard.codec import decode, encode
from rollyard.messages import Limits, Result, Sampling, ToolCall, Trajectory
from tests.agent_server.fakes import SandboxOfNothing, Says, assign, make_job
from tests.agent_server.running import Start

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
CODE = "\n".join(re.findall(r"```python\n(.*?)\n```\n", PAGE, re.DOTALL))
NAMES: dict[str, Any] = {}
exec(CODE, NAMES)

ROW = {"data_source": "count_files", "files": 3}
LIMITS = Limits(max_turns=4, max_tokens=4000)


@pytest.fixture
def sandbox(sandboxes: Bubblewrap) -> Iterator[Sandbox]:
    with sandboxes.open(SandboxNeeds(programs=("bash",))) as opened:
        yield opened


def play(template: ChatTemplate, sandbox: Sandbox, *calls: ToolCall) -> tuple[Trajectory, float]:
    """The trajectory of a policy that makes these calls, one a turn, and its reward."""
    job = make_job(instance=ROW, limits=LIMITS, sampling=Sampling(max_response_tokens=500))
    episode = InThread(NAMES["CountFiles"])
    opening = episode.start(job.prompt, sandbox)
    task = Task(
        name="t",
        job=job,
        opening=opening,
        prompt=template.prompt(opening.messages, opening.tools),
        environment=episode,
        policy=Says(template, *(template.tool_calls.render([call]) for call in calls)),
        template=template,
    )
    trajectory = ToolLoop(task).run(StopSignal())
    return trajectory, episode.grade().reward


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(call_id="", name=name, arguments=arguments)


def test_a_policy_that_uses_the_tools_solves_the_task(
    template: ChatTemplate, sandbox: Sandbox
) -> None:
    trajectory, reward = play(
        template, sandbox, call("bash", command="touch a b c"), call("submit", files=3)
    )
    assert reward == 1.0
    assert [message.role for message in trajectory.messages] == [
        *("user", "assistant", "tool", "assistant")
    ]
    assert template.encode(template.text(trajectory.token_ids)) == list(trajectory.token_ids[:-1])


def test_a_policy_that_submits_what_is_not_there_fails(
    template: ChatTemplate, sandbox: Sandbox
) -> None:
    assert play(template, sandbox, call("submit", files=3))[1] == 0.0


def test_a_package_of_ones_own_offers_tools_too(
    template: ChatTemplate,
    sandboxes: Bubblewrap,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "count_files.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("count_files", "count_files:CountFiles", "rollyard.environments")
    written = [
        template.tool_calls.render([call("bash", command="touch a b"), call("bash", command="ls")]),
        template.tool_calls.render([call("submit", files=2)]),
    ]
    with closing(EnvironmentHost((point,), ProcessLimits())) as host:
        running = start(Says(template, *written), sandboxes=sandboxes, hosted=host.environments())
        job = make_job(instance=ROW, limits=LIMITS, sampling=Sampling(max_response_tokens=500))
        running.runner.accept(assign(job))
        result = decode(encode(running.result()), Result)
    assert (result.reward, result.error) == (1.0, "")
    assert result.trajectory is not None
    _, asked, touched, listed, submitted = result.trajectory.messages
    assert [each.arguments["command"] for each in asked.tool_calls] == ["touch a b", "ls"]
    assert [each.call_id for each in asked.tool_calls] == [
        touched.tool_call_id,
        listed.tool_call_id,
    ]
    assert (touched.content, listed.content) == ("[no output]", "a\nb")
    assert submitted.tool_calls[0].arguments == {"files": 2}


def test_every_format_is_listed_with_a_call_that_it_reads() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*) \|$", PAGE, re.MULTILINE))
    assert set(OUR_FORMATS) == set(rows)
    for name in ("hermes", "qwen3_coder", "llama3_json", "mistral", "glm", "pythonic"):
        calls = [text for text in re.findall(r"`([^`]+)`", rows[name]) if "bash" in text]
        for text in calls:
            (read,) = ResponseParser(OUR_FORMATS[name], [Bash.schema]).parse(text).calls
            assert (read.name, read.arguments) == ("bash", {"command": "ls"})


@pytest.mark.parametrize(
    "written",
    [
        "<tool_call>bash ls</tool_call>",
        *map(OUR_FORMATS["hermes"].render, ([call("shell")], [call("bash", command=7)])),
    ],
)
def test_mistakes_are_answered_as_the_page_says(written: str) -> None:
    toolbox = Toolbox([Bash(), Submit()])
    response = ResponseParser(OUR_FORMATS["hermes"], toolbox.schemas).parse(written)
    (answer,) = toolbox.answer(response, SandboxOfNothing()).messages
    assert f"| `{answer.content}` |" in PAGE


def test_the_tool_of_the_page_counts_words(sandbox: Sandbox) -> None:
    toolbox = Toolbox([NAMES["WordCount"]()])
    sandbox.write("a.txt", b"one two three")
    calls = (call("word_count", path="a.txt"), call("word_count", path="b.txt"))
    answers = toolbox.answer(Response(text="", calls=calls), sandbox)
    assert [each.content for each in answers.messages] == ["3", "error: cannot read b.txt"]


def test_the_format_of_the_page_reads_what_it_writes() -> None:
    fenced = NAMES["Fenced"]()
    written = fenced.render([call("bash", command="echo '```'"), call("bash", command="ls")])
    response = ResponseParser(fenced, [Bash.schema]).parse(f"So. {written} ```call ls```")
    assert [each.arguments["command"] for each in response.calls] == ["echo '```'", "ls"]
    assert len(response.malformed) == 1
    assert response.content == "So."
    assert choose_format({"fenced": fenced, **OUR_FORMATS}, "", "write ```call {") == "fenced"
