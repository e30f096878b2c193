"""The agent loop: turns, limits, and what happens when it is told to stop."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import Policy, Task
from agent_server.agents.tool_loop import ToolLoop, TurnEnd
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.environments.in_thread import InThread
from agent_server.environments.protocol import (
    Environment,
    EnvironmentFailed,
    Needs,
    Observation,
    Opening,
    Response,
)
from agent_server.sandbox.protocol import Sandbox
from agent_server.tools.toolbox import Toolbox
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import DeadlineExceeded
from rollyard.messages import ChatMessage, Job, Limits, Prompt, Sampling, ToolSchema, Trajectory
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    EchoEnvironment,
    NeverAnswers,
    SandboxOfNothing,
    Says,
    generation,
    make_job,
)

OPENING = (ChatMessage(role="user", content="hello"),)


def converse(
    template: ChatTemplate,
    policy: Policy,
    *,
    environment: Environment | None = None,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
    stop: StopSignal | None = None,
) -> Trajectory:
    job = make_job(limits=limits, sampling=sampling)
    loop = ToolLoop(task(template, policy, job, environment or EchoEnvironment()))
    return loop.run(stop or StopSignal())


def task(template: ChatTemplate, policy: Policy, job: Job, environment: Environment) -> Task:
    episode = InThread(lambda: environment)
    return Task(
        name="t",
        job=job,
        opening=episode.start(job.prompt, SandboxOfNothing()),
        prompt=template.prompt(OPENING),
        environment=episode,
        policy=policy,
        template=template,
    )


def test_a_step_is_one_turn(template: ChatTemplate) -> None:
    policy = Says(template, "one", "bye")
    loop = ToolLoop(task(template, policy, make_job(), EchoEnvironment()))
    assert loop.step(StopSignal()) is TurnEnd.CONTINUE
    assert (loop.trajectory.turns, len(policy.requests)) == (1, 1)
    assert loop.step(StopSignal()) is TurnEnd.DONE


def test_the_tokens_are_the_whole_conversation_as_the_template_writes_it(
    template: ChatTemplate,
) -> None:
    trajectory = converse(template, Says(template, "one", "bye"))
    text = (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n"
        "<|im_start|>tool\none<|im_end|>\n<|im_start|>assistant\nbye<|im_end|>"
    )
    assert list(trajectory.token_ids) == template.encode(text)
    assert not trajectory.truncated


def test_each_prompt_continues_the_one_before(template: ChatTemplate) -> None:
    policy = Says(template, "one", "two", "bye")
    trajectory = converse(template, policy)
    for request, turn in zip(policy.requests, trajectory.turns, strict=True):
        assert list(request.token_ids) == list(trajectory.token_ids[: turn.start])


def test_only_the_policys_tokens_are_learned_from(template: ChatTemplate) -> None:
    trajectory = converse(template, Says(template, "one", "bye", version=5))
    learned = [
        token for token, bit in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if bit
    ]
    end = template.end_token_id
    assert learned == [*template.encode("one"), end, *template.encode("bye"), end]
    assert {span.version for span in trajectory.weight_spans} == {5}
    assert all(
        (lp == -0.5) == bool(bit)
        for lp, bit in zip(trajectory.logprobs, trajectory.loss_mask, strict=True)
    )


def test_a_turn_ended_by_another_stop_token_is_closed_by_the_templates_own(
    many_ends: ChatTemplate,
) -> None:
    end, other = many_ends.end_token_id, many_ends.encode("<|endoftext|>")[0]
    policy, environment = Says(many_ends, "one", "bye", end=other), EchoEnvironment()
    trajectory = converse(many_ends, policy, environment=environment)
    usual = converse(many_ends, Says(many_ends, "one", "bye"))
    first, last = trajectory.turns
    assert trajectory.token_ids[first.end - 1] == trajectory.token_ids[last.end - 1] == other
    assert trajectory.token_ids[first.end] == end
    observed = slice(first.end, last.start)
    assert set(trajectory.loss_mask[observed]) == {0}
    assert set(trajectory.logprobs[observed]) == {0.0}
    assert trajectory.token_ids[observed][1:] == usual.token_ids[first.end : usual.turns[1].start]
    assert trajectory.messages == usual.messages  # nobody hears of the token
    assert environment.steps == 2
    assert list(policy.requests[1].token_ids) == list(trajectory.token_ids[: last.start])


def test_the_turn_limit_truncates_and_the_last_turn_still_counts(template: ChatTemplate) -> None:
    environment = EchoEnvironment()
    limits = Limits(max_turns=2, max_tokens=400)
    trajectory = converse(
        template, Says(template, "one", "two", "three"), environment=environment, limits=limits
    )
    assert trajectory.truncated
    assert len(trajectory.turns) == environment.steps == 2
    assert trajectory.messages[-1].content == "two"


def test_the_last_turn_allowed_may_finish(template: ChatTemplate) -> None:
    limits = Limits(max_turns=2, max_tokens=400)
    assert not converse(template, Says(template, "one", "bye"), limits=limits).truncated


def test_the_token_limit_cuts_a_response_short(template: ChatTemplate) -> None:
    opening = len(template.prompt(OPENING))
    limits = Limits(max_turns=9, max_tokens=opening + 3)
    trajectory = converse(template, Says(template, "a long answer"), limits=limits)
    assert trajectory.truncated
    assert len(trajectory.token_ids) == opening + 3
    assert trajectory.turns[-1].finish_reason == "length"


def test_an_observation_that_does_not_fit_truncates(template: ChatTemplate) -> None:
    opening = len(template.prompt(OPENING))
    limits = Limits(max_turns=9, max_tokens=opening + 20)
    trajectory = converse(template, Says(template, "0123456789"), limits=limits)
    assert trajectory.truncated
    assert len(trajectory.token_ids) == trajectory.turns[-1].end <= limits.max_tokens
    assert trajectory.turns[-1].finish_reason == "stop"


def test_an_observation_that_leaves_no_room_for_an_answer_truncates(template: ChatTemplate) -> None:
    whole = converse(template, Says(template, "one", "bye"))
    limits = Limits(max_turns=9, max_tokens=whole.turns[1].start)
    trajectory = converse(template, Says(template, "one", "bye"), limits=limits)
    assert trajectory.truncated
    assert trajectory.turns == whole.turns[:1]
    assert len(trajectory.token_ids) == whole.turns[0].end


def test_the_response_limit_truncates(template: ChatTemplate) -> None:
    policy = Says(template, "0123456789")
    trajectory = converse(template, policy, sampling=Sampling(max_response_tokens=4))
    assert policy.requests[0].max_tokens == 4
    assert trajectory.truncated
    assert trajectory.turns[-1].end - trajectory.turns[-1].start == 4


def test_a_cancelled_conversation_is_stopped(template: ChatTemplate) -> None:
    policy, stop = NeverAnswers(), StopSignal()

    def cancel() -> None:
        policy.asked.wait(PATIENCE_SECONDS)
        stop.stop(StopReason.CANCELLED)

    threading.Thread(target=cancel).start()
    with pytest.raises(Stopped) as stopped:
        converse(template, policy, stop=stop)
    assert stopped.value.reason is StopReason.CANCELLED


def test_no_response_in_the_whole_time_is_not_the_policys_doing(template: ChatTemplate) -> None:
    stop = StopSignal()
    stop.stop(StopReason.OUT_OF_TIME)
    with pytest.raises(DeadlineExceeded, match="not give one response"):
        converse(template, Says(template, "one"), stop=stop)


class EndsTheTime(EchoEnvironment):
    """Its time is over in the middle of a step."""

    def __init__(self, stop: StopSignal, error: Exception | None = None) -> None:
        super().__init__()
        self._stop = stop
        self._error = error

    def step(self, response: Response) -> Observation:
        self._stop.stop(StopReason.OUT_OF_TIME)
        if self._error is not None:
            raise self._error
        return super().step(response)


@pytest.mark.parametrize("error", [None, OSError("the tool was killed")])
def test_the_time_limit_keeps_what_was_said_and_drops_the_stopped_step(
    template: ChatTemplate, error: Exception | None
) -> None:
    stop = StopSignal()
    trajectory = converse(
        template, Says(template, "one", "two"), environment=EndsTheTime(stop, error), stop=stop
    )
    assert trajectory.truncated
    assert [message.content for message in trajectory.messages] == ["hello", "one"]


class CutOff(Says):
    """Is aborted in the middle of its first response."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        stop.stop(StopReason.OUT_OF_TIME)
        return generation(self._template.encode("on"), "abort")


def test_the_time_limit_keeps_half_a_response(template: ChatTemplate) -> None:
    trajectory = converse(template, CutOff(template))
    assert trajectory.truncated
    assert trajectory.turns[-1].finish_reason == "abort"
    assert trajectory.messages[-1].content == "on"


def test_an_error_in_a_step_is_raised(template: ChatTemplate) -> None:
    class Broken(EchoEnvironment):
        def step(self, response: Response) -> Observation:
            raise ZeroDivisionError("a bug")

    with pytest.raises(EnvironmentFailed, match=r"ZeroDivisionError in step.*a bug"):
        converse(template, Says(template, "one"), environment=Broken())


class Upper:
    """Answers each call with its text in capitals, until a response has no call."""

    needs = Needs()
    schema = ToolSchema(
        name="upper",
        description="Write in capitals.",
        parameters={"properties": {"text": {"type": "string"}}},
    )

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self._toolbox = Toolbox([self])

    def call(self, arguments: Mapping[str, Any], sandbox: Sandbox) -> str:
        return str(arguments["text"]).upper()

    def start(self, prompt: Prompt, sandbox: Sandbox) -> Opening:
        return Opening(messages=OPENING, tools=self._toolbox.schemas)

    def step(self, response: Response) -> Observation:
        self.responses.append(response)
        answers = self._toolbox.answer(response, SandboxOfNothing())
        return Observation(messages=answers.messages, done=not answers.messages)

    def grade(self) -> float:
        return 1.0


def upper(text: str) -> str:
    return f'<tool_call>{{"name": "upper", "arguments": {{"text": "{text}"}}}}</tool_call>'


def use_tools(template: ChatTemplate, environment: Environment, *responses: str) -> Trajectory:
    return converse(
        template,
        Says(template, *responses),
        environment=environment,
        limits=Limits(max_turns=4, max_tokens=2000),
        sampling=Sampling(max_response_tokens=500),
    )


def test_an_environment_with_tools_hears_of_calls_and_reasoning(template: ChatTemplate) -> None:
    environment = Upper()
    said = f"<think>both</think>Wait.{upper('a')}{upper('b')}"
    trajectory = use_tools(template, environment, said, "done")
    first, last = environment.responses
    assert (first.text, first.content, first.reasoning) == (said, "Wait.", "both")
    assert [call.arguments for call in first.calls] == [{"text": "a"}, {"text": "b"}]
    assert (last.content, last.calls) == ("done", ())
    _, spoken, one, two, _ = trajectory.messages
    assert (spoken.content, spoken.reasoning) == (said, "both")  # its text is what was sampled
    assert spoken.tool_calls == first.calls
    assert [(each.content, each.tool_call_id) for each in (one, two)] == [
        ("A", first.calls[0].call_id),
        ("B", first.calls[1].call_id),
    ]


def test_no_two_calls_of_a_conversation_have_the_same_id(template: ChatTemplate) -> None:
    environment = Upper()
    use_tools(template, environment, upper("a"), upper("b"), "done")
    ids = [call.call_id for response in environment.responses for call in response.calls]
    assert len(set(ids)) == len(ids) == 2


def test_a_malformed_call_is_an_observation(template: ChatTemplate) -> None:
    trajectory = use_tools(template, Upper(), "<tool_call>upper a", "done")
    assert trajectory.messages[2].content == (
        "error: the tool call is not JSON: Expecting value (character 0)"
    )
    assert not trajectory.truncated


def test_an_environment_without_tools_hears_the_text_alone(template: ChatTemplate) -> None:
    class Hears(EchoEnvironment):
        def step(self, response: Response) -> Observation:
            assert (response.text, response.calls) == (upper("a"), ())
            return Observation(done=True)

    use_tools(template, Hears(), upper("a"))
