"""Orders to park, to go on and to stop, at any time and in any order: a Job is never the worse."""

import queue
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_server.agents.chat_template import ChatTemplate
from agent_server.environments.in_thread import in_thread
from agent_server.environments.protocol import Observation, Response
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import Stages
from agent_server.metrics import Metrics
from agent_server.sandbox.protocol import Sandbox
from rollyard.messages import ChatMessage, Outcome, Prompt, Result, Trajectory
from tests.agent_server.fakes import (
    PATIENCE_SECONDS,
    EchoEnvironment,
    Recites,
    SandboxesOfNothing,
    assign,
    make_job,
)
from tests.agent_server.running import AGENTS, ECHO
from tests.agent_server.undisturbed import assert_the_same

ASSIGNMENT = assign(make_job(instance=ECHO))
LEASE = ASSIGNMENT.lease
MAX_TOKENS = 24
"""More than the policy says in the whole conversation."""

orders = st.lists(st.sampled_from(["park", "resume"]), max_size=3)


class Disturbed:
    """A runner with one Job that is given orders: by the policy before each token, by the
    environment in each of its methods, and from outside whenever one of them has done its part."""

    def __init__(
        self,
        template: ChatTemplate,
        undisturbed: Trajectory,
        in_policy: Mapping[int, Sequence[str]],
        in_environment: Sequence[Sequence[str]],
    ) -> None:
        self.events: queue.Queue[Result | None] = queue.Queue()
        self.policy = Recites(undisturbed.token_ids)
        self.policy.before = lambda drawn: self.give(in_policy.get(drawn, ()))
        self.policy.after_each = lambda: self.events.put(None)
        self._in_environment = iter(in_environment)
        stages = Stages(
            environments={"echo": in_thread(lambda: Ordering(self))},
            agents=AGENTS,
            sandboxes=SandboxesOfNothing(),
            policy=self.policy,
            template=template,
        )
        settings = RunnerSettings(slots=1)
        self.runner = JobRunner(settings, stages, Metrics(), self.events.put)

    def give(self, given: Sequence[str]) -> None:
        for order in given:
            act = {
                "park": self.runner.park,
                "resume": self.runner.resume,
                "cancel": self.runner.cancel,
            }
            act[order](LEASE)

    def give_next(self) -> None:
        self.give(next(self._in_environment, ()))
        self.events.put(None)


class Ordering(EchoEnvironment):
    def __init__(self, job: Disturbed) -> None:
        super().__init__()
        self._job = job

    def start(self, prompt: Prompt, sandbox: Sandbox) -> tuple[ChatMessage, ...]:
        self._job.give_next()
        return super().start(prompt, sandbox)

    def step(self, response: Response) -> Observation:
        self._job.give_next()
        return super().step(response)

    def grade(self) -> float:
        self._job.give_next()
        return super().grade()


@settings(max_examples=60, deadline=None)
@given(
    in_policy=st.dictionaries(st.integers(0, MAX_TOKENS), orders, max_size=6),
    in_environment=st.lists(orders, max_size=5),
    outside=st.lists(orders, max_size=8),
    cancelled_at=st.none() | st.integers(0, 12),
)
def test_a_job_ends_once_and_as_if_it_had_not_been_disturbed(
    template: ChatTemplate,
    undisturbed: Trajectory,
    in_policy: dict[int, list[str]],
    in_environment: list[list[str]],
    outside: list[list[str]],
    cancelled_at: int | None,
) -> None:
    job = Disturbed(template, undisturbed, in_policy, in_environment)
    job.runner.accept(ASSIGNMENT)
    number = 0
    while (result := job.events.get(timeout=PATIENCE_SECONDS)) is None:
        job.policy.version += 1
        job.give(outside[number] if number < len(outside) else ())
        job.give(["cancel"] if number == cancelled_at else ["resume"])
        number += 1
    assert job.runner.leases() == ()
    job.runner.close(PATIENCE_SECONDS)
    assert all(event is None for event in job.events.queue), "it ended twice"
    assert result.lease == LEASE
    if result.outcome is Outcome.CANCELLED:
        assert cancelled_at is not None
        assert result.trajectory is None
    else:
        assert_the_same(result, undisturbed)
