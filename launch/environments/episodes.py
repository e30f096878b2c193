"""One episode of one row, with the served model, a script, or a human as the policy."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.tool_calls.formats import OUR_FORMATS
from agent_server.agents.tool_calls.parser import ResponseParser
from agent_server.gateway.gateway import Gateway
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient, LLMSettings
from agent_server.metrics import Metrics
from agent_server.registry import load_agents, load_tool_call_formats
from launch.environments.workbench import Workbench
from rollyard.errors import DeadlineExceeded, InvalidMessage, Unavailable
from rollyard.messages import (
    Assignment,
    ChatMessage,
    Grade,
    Job,
    Lease,
    Limits,
    Prompt,
    Result,
    Sampling,
)

SEPARATOR = "---"
"""The line between two responses of a script."""

Say = Callable[[], str | None]
"""The policy's next response; None when it has no more to say."""
Tell = Callable[[ChatMessage], None]
"""Called with each message of the conversation."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was played, and its grade."""

    row: str
    messages: tuple[ChatMessage, ...]
    grade: Grade
    truncated: bool
    """True if the episode was cut off before its end."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The served model that plays, and how it samples."""

    directory: Path
    servers: tuple[str, ...]
    tool_calls: str = ""
    sampling: Sampling = Sampling()


def script(path: Path) -> Iterator[str]:
    """The responses of a script, which lines of `---` separate. Raises `InvalidMessage`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidMessage(f"cannot read the script {path}: {error}") from error
    response: list[str] = []
    for line in text.splitlines():
        if line.strip() == SEPARATOR:
            yield "\n".join(response)
            response = []
        else:
            response.append(line)
    yield "\n".join(response)


def play(bench: Workbench, prompt: Prompt, say: Say, tell: Tell, limits: Limits) -> Played:
    """Play the row with responses that `say` gives, calls in the format of hermes."""
    told: list[ChatMessage] = []

    def add(messages: Sequence[ChatMessage]) -> None:
        told.extend(messages)
        for message in messages:
            tell(message)

    with bench.episode(prompt, limits.job_seconds) as (episode, opening):
        parser = ResponseParser(OUR_FORMATS["hermes"], opening.tools)
        add(opening.messages)
        done = False
        for _ in range(limits.max_turns):
            if (text := say()) is None:
                break
            response = parser.parse(text)
            add([ChatMessage(role="assistant", content=text, tool_calls=response.calls)])
            observation = episode.step(response)
            if done := observation.done:
                break
            add(observation.messages)
        grade = episode.grade()
    return Played(row=prompt.prompt_id, messages=tuple(told), grade=grade, truncated=not done)


def play_with(bench: Workbench, prompt: Prompt, model: Model, limits: Limits) -> Played:
    """Play the row with the served model, as a Job of its own. Raises `Unavailable` where the
    infrastructure failed, with its reason."""
    template = ChatTemplate.load(
        model.directory, tool_calls=model.tool_calls, formats=load_tool_call_formats()
    )
    policy = LLMClient(LLMSettings(servers=model.servers))
    if reason := policy.why_not_ready():
        raise Unavailable(reason, fix="serve the model, as with `rollyard up --model`")
    with ExitStack() as held:
        held.callback(policy.close)
        stages = Stages(
            environments={bench.name: bench.kind},
            agents=load_agents(),
            sandboxes=bench.sandboxes,
            policy=policy,
            template=template,
            gateway=held.enter_context(closing(Gateway())),
        )
        results: SimpleQueue[Result] = SimpleQueue()
        runner = JobRunner(RunnerSettings(slots=1), stages, Metrics(), results.put)
        held.callback(runner.close, wait_seconds=5.0)
        runner.accept(_assignment(prompt, model.sampling, limits))
        result = _next(results, limits)
    if result.trajectory is None or result.grade is None:
        raise Unavailable(f"the episode has no grade: {result.error}")
    return Played(
        row=prompt.prompt_id,
        messages=result.trajectory.messages,
        grade=result.grade,
        truncated=result.trajectory.truncated,
    )


def _next(results: "SimpleQueue[Result]", limits: Limits) -> Result:
    settings = RunnerSettings()
    stages = settings.init_seconds + limits.job_seconds + settings.eval_seconds
    try:
        return results.get(timeout=stages + 3 * settings.grace_seconds)
    except Empty:
        raise DeadlineExceeded(
            "the episode did not end", fix="look at what the environment's code waits for"
        ) from None


def _assignment(prompt: Prompt, sampling: Sampling, limits: Limits) -> Assignment:
    job = Job(
        job_id=f"try/{prompt.prompt_id}/0",
        run_id="try",
        group_id=prompt.prompt_id,
        member=0,
        prompt=prompt,
        sampling=sampling,
        limits=limits,
    )
    lease = Lease(job_id=job.job_id, attempt=1, server_id="try", slot="try#0")
    return Assignment(job=job, lease=lease)
