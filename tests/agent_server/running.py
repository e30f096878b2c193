"""A job runner at work on made-up environments, and the Results it makes."""

import queue
from collections.abc import Mapping
from types import MappingProxyType

from agent_server.agents.chat_template import ChatTemplate
from agent_server.agents.command import CommandAgent
from agent_server.agents.protocol import AgentGateway, MakeAgent
from agent_server.agents.tool_loop import ToolLoop
from agent_server.environments.arithmetic import Arithmetic
from agent_server.environments.in_thread import in_thread
from agent_server.environments.protocol import EnvironmentKind, MakeEnvironment
from agent_server.jobs.runner import JobRunner, RunnerSettings
from agent_server.jobs.stages import SharedPolicy, Stages
from agent_server.metrics import Metrics
from agent_server.sandbox.protocol import SandboxFactory
from rollyard.messages import Result
from tests.agent_server.fakes import PATIENCE_SECONDS, EchoEnvironment, SandboxesOfNothing

AGENTS: dict[str, MakeAgent] = {"tool_loop": ToolLoop, "command": CommandAgent}
ECHO = {"data_source": "echo"}
SETTINGS = RunnerSettings(slots=2, init_seconds=20, eval_seconds=20, grace_seconds=5)


class Running:
    """A runner and the Results it has made."""

    def __init__(
        self,
        template: ChatTemplate,
        policy: SharedPolicy,
        environment: MakeEnvironment,
        settings: RunnerSettings,
        sandboxes: SandboxFactory,
        hosted: Mapping[str, EnvironmentKind] = MappingProxyType({}),
        gateway: AgentGateway | None = None,
    ) -> None:
        self.results: queue.Queue[Result] = queue.Queue()
        self.metrics = Metrics()
        stages = Stages(
            environments={
                "echo": in_thread(environment),
                "arithmetic": in_thread(Arithmetic),
                **hosted,
            },
            agents=AGENTS,
            sandboxes=sandboxes,
            policy=policy,
            template=template,
            gateway=gateway,
        )
        self.runner = JobRunner(settings, stages, self.metrics, self.results.put)

    def result(self) -> Result:
        return self.results.get(timeout=PATIENCE_SECONDS)


class Start:
    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self.started: list[Running] = []

    def __call__(
        self,
        policy: SharedPolicy,
        environment: MakeEnvironment = EchoEnvironment,
        *,
        settings: RunnerSettings = SETTINGS,
        sandboxes: SandboxFactory | None = None,
        hosted: Mapping[str, EnvironmentKind] = MappingProxyType({}),
        gateway: AgentGateway | None = None,
    ) -> Running:
        given = sandboxes or SandboxesOfNothing()
        running = Running(self._template, policy, environment, settings, given, hosted, gateway)
        self.started.append(running)
        return running
