"""The agent loop: the policy speaks, the environment answers, until one of them or a limit ends it.

What the policy does, hitting a limit included, ends in a Trajectory. What goes wrong around the
policy is raised.
"""

from enum import Enum, auto
from typing import Protocol

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.trajectory import TrajectoryBuilder
from agent_server.environments.protocol import Environment, EnvironmentKilled, Observation
from agent_server.stop import Reason, Stopped, StopSignal
from llm_servers.generation import Generation, TurnRequest
from rollyard.errors import DeadlineExceeded, InvalidMessage
from rollyard.messages import ChatMessage, Job, Trajectory


class Policy(Protocol):
    """Where responses come from."""

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation: ...


class _After(Enum):
    """How things stand after a Turn."""

    GOES_ON = auto()
    DONE = auto()
    CUT_OFF = auto()


class ToolLoop:
    """One Job's conversation; `name` tells its requests from those of all other attempts."""

    def __init__(
        self,
        name: str,
        job: Job,
        environment: Environment,
        policy: Policy,
        template: ChatTemplate,
    ) -> None:
        self._name = name
        self._sampling = job.sampling
        self._limits = job.limits
        self._environment = environment
        self._policy = policy
        self._template = template

    def run(self, opening: tuple[ChatMessage, ...], stop: StopSignal) -> Trajectory:
        """Take Turns to the end. Raises `Stopped` when cancelled."""
        trajectory = self._begin(opening)
        after = _After.GOES_ON
        while after is _After.GOES_ON:
            try:
                after = self._take_turn(trajectory, stop)
            except Stopped as stopped:
                after = self._out_of_time(stopped, trajectory)
        return trajectory.finish(truncated=after is _After.CUT_OFF)

    def _begin(self, opening: tuple[ChatMessage, ...]) -> TrajectoryBuilder:
        prompt = self._template.prompt(opening)
        if len(prompt) >= self._limits.max_tokens:
            raise InvalidMessage(
                f"the prompt alone has {len(prompt)} tokens, limits.max_tokens is "
                f"{self._limits.max_tokens}",
                fix="raise max_tokens or drop the prompt from the dataset",
            )
        return TrajectoryBuilder(prompt, opening)

    def _take_turn(self, trajectory: TrajectoryBuilder, stop: StopSignal) -> _After:
        prompt = trajectory.prompt()
        generation = self._policy.generate(self._request(prompt, trajectory.version), stop)
        text = self._template.text(generation.token_ids)
        trajectory.add_response(prompt, generation, text)
        if generation.finish_reason != "stop":
            return _After.CUT_OFF
        observation = self._step(text, stop)
        if observation.done:
            return _After.DONE
        return self._observe(observation, generation.token_ids[-1], trajectory)

    def _request(self, prompt: tuple[int, ...], version: int) -> TurnRequest:
        room = self._limits.max_tokens - len(prompt)
        return TurnRequest(
            trajectory=self._name,
            token_ids=prompt,
            sampling=self._sampling,
            max_tokens=min(self._sampling.max_response_tokens, room),
            stop_token_ids=self._template.stop_token_ids,
            least_version=version,
        )

    def _step(self, text: str, stop: StopSignal) -> Observation:
        try:
            observation = self._environment.step(text)
        except EnvironmentKilled:
            raise
        except Exception:
            stop.check()  # a tool that was stopped fails, and that is not its fault
            raise
        stop.check()
        return observation

    def _observe(
        self, observation: Observation, after: int, trajectory: TrajectoryBuilder
    ) -> _After:
        """Append the observation, behind the stop token `after`, where another Turn may follow."""
        tokens = self._template.observation(observation.messages, after=after)
        if (
            trajectory.turns >= self._limits.max_turns
            or len(trajectory) + len(tokens) >= self._limits.max_tokens
        ):
            return _After.CUT_OFF
        trajectory.add_observation(tokens, observation.messages)
        return _After.GOES_ON

    def _out_of_time(self, stopped: Stopped, trajectory: TrajectoryBuilder) -> _After:
        if stopped.reason is not Reason.OUT_OF_TIME:
            raise stopped
        if trajectory.turns == 0:
            raise DeadlineExceeded(
                f"the policy did not give one response in {self._limits.job_seconds:g} s",
                fix="the LLM servers are too slow or too many jobs share them",
            ) from stopped
        return _After.CUT_OFF
