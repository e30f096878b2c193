"""The work of an attempt in each stage. A stage that cannot be finished raises.

Threads, deadlines and Results belong to the runner.
"""

from array import array
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Protocol

import msgspec

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.protocol import AgentGateway, MakeAgent, Policy, Task
from agent_server.agents.resumable import Resumable
from agent_server.control.stop import StopSignal
from agent_server.environments.no_sandbox import NoSandbox
from agent_server.environments.protocol import EnvironmentKind, Needs, Opening
from agent_server.jobs.attempt import Attempt
from agent_server.sandbox.protocol import SandboxFactory
from rollyard.errors import InvalidMessage
from rollyard.messages import Job, TokenArray


class SharedPolicy(Policy, Protocol):
    """A `Policy` that holds resources for each trajectory."""

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and response together that the policy takes."""

    def release(self, trajectory: str) -> None: ...


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """The stages, with all that the attempts of a server share."""

    environments: Mapping[str, EnvironmentKind]
    agents: Mapping[str, MakeAgent]
    sandboxes: SandboxFactory
    policy: SharedPolicy
    template: ChatTemplate
    gateway: AgentGateway | None = None
    """None where no agent is a program of its own."""
    rewards_compute_here: bool = True
    """False if a service grades for `Rewards`."""

    def init(self, attempt: Attempt, stop: StopSignal) -> None:
        prompt = attempt.job.prompt
        if (needs := self._needs(attempt).sandbox_for(prompt.instance)) is not None:
            attempt.sandbox = self.sandboxes.open(needs)
        sandbox = attempt.sandbox or NoSandbox()
        with stop.interrupting(attempt.interrupt):
            attempt.opening = attempt.episode.start(prompt, sandbox)
        if not attempt.opening.command:  # else the prompt is known when the program asks
            attempt.prompt = self._tokens(attempt.opening, attempt.job.limits.max_tokens)

    def _needs(self, attempt: Attempt) -> Needs:
        return self.environments[attempt.job.prompt.data_source].needs

    def _tokens(self, opening: Opening, max_tokens: int) -> TokenArray:
        """The first prompt. Raises `InvalidMessage` for one that leaves no room for a response."""
        prompt = array(
            "i", self.template.prompt(opening.messages, opening.tools)
        )  # it is kept: 4 bytes a token, not 36
        context = self.policy.context_tokens
        if len(prompt) >= context:
            raise InvalidMessage(
                f"the prompt alone has {len(prompt)} tokens, and the model's context is {context}",
                fix="leave the row out, or serve the model with a longer context",
            )
        if len(prompt) >= max_tokens:
            raise InvalidMessage(
                f"the prompt alone has {len(prompt)} tokens, limits.max_tokens is {max_tokens}",
                fix="raise max_tokens or drop the prompt from the dataset",
            )
        return prompt

    def run(self, attempt: Attempt, stop: StopSignal) -> None:
        assert attempt.deadline is not None
        task = Task(
            name=attempt.name,
            job=_within_context(attempt.job, self.policy.context_tokens),
            opening=attempt.opening,
            prompt=attempt.prompt,
            environment=attempt.episode,
            policy=Resumable(self.policy, attempt.parking, attempt.deadline),
            template=self.template,
            sandbox=attempt.sandbox,
            gateway=self.gateway,
        )
        with stop.interrupting(attempt.interrupt):
            agent = self.agents[self._needs(attempt).agent](task)
            attempt.trajectory = agent.run(stop)

    def eval(self, attempt: Attempt, stop: StopSignal) -> None:
        if attempt.sandbox is not None:
            attempt.sandbox.readmit()
        with stop.interrupting(attempt.interrupt):
            attempt.grade = attempt.episode.grade()

    def eval_seconds(self, attempt: Attempt, usual: float) -> float:
        """Seconds that the attempt may be in EVAL."""
        return self._needs(attempt).eval_seconds or usual

    def is_graded_here(self, attempt: Attempt) -> bool:
        """True if grading keeps a CPU of this machine busy."""
        needs = self._needs(attempt)
        return needs.computes_grade or (needs.rewards and self.rewards_compute_here)

    def clean_up(self, attempt: Attempt) -> None:
        """Give back all that the attempt holds, also if that fails for a part of it. A second call
        changes nothing."""
        with ExitStack() as held:
            held.callback(self.policy.release, attempt.name)
            held.callback(attempt.episode.close)
            if attempt.sandbox is not None:
                held.callback(attempt.sandbox.close)


def _within_context(job: Job, context_tokens: int) -> Job:
    """The Job with a token limit that fits the model's context: a trajectory that fills it is
    truncated."""
    most = min(job.limits.max_tokens, context_tokens)
    return msgspec.structs.replace(job, limits=msgspec.structs.replace(job.limits, max_tokens=most))
