"""The agent of environments with tools: the policy and the environment take turns."""

from collections.abc import Sequence
from enum import Enum, auto

from agent_server.agents.protocol import Task
from agent_server.agents.tool_calls.parser import ResponseParser
from agent_server.agents.tool_calls.reasoning import opens_reasoning
from agent_server.agents.trajectory import TrajectoryBuilder
from agent_server.control.stop import Stopped, StopReason, StopSignal
from agent_server.environments.protocol import EnvironmentKilled, Observation, Response
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import DeadlineExceeded
from rollyard.messages import ChatMessage, Trajectory

# A tag that opens reasoning, in the tokens of any model: it may have one for each letter.
_TAIL_TOKENS = 16


class TurnEnd(Enum):
    """The ways in which a trajectory goes on after a Turn."""

    CONTINUE = auto()
    DONE = auto()
    TRUNCATED = auto()


class ToolLoop:
    """An `Agent`; its `trajectory` holds the conversation so far."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.limits = task.job.limits
        self.trajectory = TrajectoryBuilder(task.prompt, task.opening.messages)
        self.parser = ResponseParser(task.template.tool_calls, task.opening.tools)

    def run(self, stop: StopSignal) -> Trajectory:
        end = TurnEnd.CONTINUE
        while end is TurnEnd.CONTINUE:
            try:
                end = self.step(stop)
            except Stopped as stopped:
                end = self._out_of_time(stopped)
        return self.trajectory.finish(truncated=end is TurnEnd.TRUNCATED)

    def step(self, stop: StopSignal) -> TurnEnd:
        """Take one Turn."""
        generation, response = self.query(stop)
        if generation.finish_reason != "stop":
            return TurnEnd.TRUNCATED
        observation = self.execute(response, stop)
        if observation.done:
            return TurnEnd.DONE
        return self.observe(observation, after=generation.token_ids[-1])

    def query(self, stop: StopSignal) -> tuple[Generation, Response]:
        """Append the policy's next response to the trajectory, and return it as sampled and as
        read."""
        prompt = self.trajectory.prompt()
        generation = self.task.policy.generate(self._request(prompt), stop)
        text = self.task.template.text
        response = self.parser.parse(
            text(generation.token_ids), in_reasoning=opens_reasoning(text(prompt[-_TAIL_TOKENS:]))
        )
        self.trajectory.add_response(prompt, generation, _message(response))
        return generation, response

    def execute(self, response: Response, stop: StopSignal) -> Observation:
        """The environment's reaction to a response that the policy ended itself."""
        try:
            observation = self.task.environment.step(response)
        except EnvironmentKilled:
            raise
        except Exception:
            stop.check()  # a tool that was stopped fails, and that is not its fault
            raise
        stop.check()
        return observation

    def observe(self, observation: Observation, *, after: int) -> TurnEnd:
        """Append the observation, behind the stop token `after`, where another Turn may follow."""
        if self.trajectory.turns >= self.limits.max_turns:
            return TurnEnd.TRUNCATED
        messages, tools = observation.messages, self.task.opening.tools
        rewritten = self.task.template.rewritten(self.trajectory.history, messages, tools)
        if rewritten is not None:
            return self._begin_sequence(rewritten, messages)
        tokens = self.task.template.observation(messages, after=after, tools=tools)
        if len(self.trajectory) + len(tokens) >= self.limits.max_tokens:
            return TurnEnd.TRUNCATED
        self.trajectory.add_observation(tokens, messages)
        return TurnEnd.CONTINUE

    def _begin_sequence(self, prompt: Sequence[int], messages: Sequence[ChatMessage]) -> TurnEnd:
        if len(prompt) >= self.limits.max_tokens:
            return TurnEnd.TRUNCATED
        self.trajectory.begin_sequence(prompt, messages)
        return TurnEnd.CONTINUE

    def _request(self, prompt: Sequence[int]) -> TurnRequest:
        job, room = self.task.job, self.limits.max_tokens - len(prompt)
        return TurnRequest(
            trajectory=self.task.name,
            group=f"{job.run_id}/{job.group_id}",
            token_ids=prompt,
            sampling=job.sampling,
            max_tokens=min(job.sampling.max_response_tokens, room),
            stop_token_ids=self.task.template.stop_token_ids,
            min_version=self.trajectory.version,
        )

    def _out_of_time(self, stopped: Stopped) -> TurnEnd:
        if stopped.reason is not StopReason.OUT_OF_TIME:
            raise stopped
        if self.trajectory.turns == 0:
            raise DeadlineExceeded(
                f"the policy did not give one response in {self.limits.job_seconds:g} s",
                fix="the LLM servers are too slow or too many jobs share them",
            ) from stopped
        return TurnEnd.TRUNCATED


def _message(response: Response) -> ChatMessage:
    """The policy's message, whose text is all that it wrote."""
    return ChatMessage(
        role="assistant",
        content=response.text,
        tool_calls=response.calls,
        reasoning=response.reasoning,
    )
