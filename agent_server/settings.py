"""Settings of one agent server, checked once, when they are made."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from agent_server.environments.hosted.containment import ProcessLimits
from agent_server.jobs.runner import RunnerSettings
from agent_server.nemo_gym.settings import NemoGymSettings
from agent_server.presence import PresenceSettings
from agent_server.prorl.settings import DoorSettings
from agent_server.rewards.local import LocalRewardSettings
from agent_server.rewards.remote import RemoteRewardSettings
from agent_server.sandbox.settings import SandboxSettings
from rollyard.errors import InvalidMessage
from rollyard.messages import check, check_name, check_url
from rollyard.tokens import NO_TOKENS, Tokens
from serving.bind import Bind
from serving.log_format import LogFormat


class AgentServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    server_id: str
    bind: Bind
    orchestrator: str
    llm_servers: tuple[str, ...]
    proxies: Mapping[str, int] = MappingProxyType({})
    """Those of `llm_servers` that are proxies of ours, with the number of LLM servers for which
    each counts. They are shown the token of the services, which no other one ever sees."""
    follows_llm_nodes: bool = False
    """True to use the LLM servers that LLM nodes and trainers announce, too."""
    model: Path
    """Directory of the served model: its tokenizer and chat template are used."""
    stop_tokens: tuple[str, ...] = ()
    """Texts of tokens that end a response, beside those that the model's own files name."""
    tool_calls: str = ""
    """Name of the format in which the model writes tool calls; empty to go by its chat template."""
    tags: tuple[str, ...] = ()
    """Names of what this machine has. Environments may need them (`Needs.tags`), and so may Jobs
    (`Prompt.tags`)."""
    repositories: Path | None = None
    """Directory of the repositories that environments work on."""
    runner: RunnerSettings = RunnerSettings()
    presence: PresenceSettings = PresenceSettings()
    sandbox: SandboxSettings = SandboxSettings()
    warm_sandboxes: int = 4
    """Sandboxes kept ready for each kind that environments need."""
    environments: ProcessLimits = ProcessLimits()
    local_rewards: LocalRewardSettings = LocalRewardSettings()
    reward_service: RemoteRewardSettings | None = None
    """Service that grades; without one, and while it is away, answers are graded here."""
    door: DoorSettings | None = None
    """Settings of the ProRL door, if there is one."""
    nemo_gym: NemoGymSettings | None = None
    """Settings of the NeMo-Gym door, if there is one."""
    secret: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    """Proof that the server id is its own; a server that is started again needs the same one."""
    tokens: Tokens = NO_TOKENS
    """Tokens of its callers; it presents the services' token to the orchestrator."""
    log_format: LogFormat = LogFormat.TEXT

    def __post_init__(self) -> None:
        check_name(self.server_id, "server_id")
        for url in (self.orchestrator, *self.llm_servers):
            check_url(url)
        # A service that does not answer, and then the graders here, must fit into the time of EVAL.
        check(
            2 * self.local_rewards.task_seconds <= self.runner.eval_seconds,
            f"grading may take {self.local_rewards.task_seconds:g} s in a service and again here, "
            f"which is more than the {self.runner.eval_seconds:g} s of EVAL",
            fix="lower --reward-seconds",
        )
        foreign = [url for url in self.proxies if url not in self.llm_servers]
        check(not foreign, f"no LLM server is at {' '.join(foreign)}, which is to be a proxy")
        if not self.llm_servers and not self.follows_llm_nodes:
            raise InvalidMessage(
                "no LLM server is given",
                fix="give at least one --llm-server or --llm-proxy, or --llm-announced",
            )
        check(
            self.door is None or self.nemo_gym is None,
            "an agent server has one door, which shares its slots",
            fix="give --prorl-port or --nemo-gym-port, and the other one to another agent server",
        )
        check(self.warm_sandboxes >= 0, f"warm_sandboxes is negative: {self.warm_sandboxes}")

    @property
    def door_binds(self) -> tuple[Bind, ...]:
        """Where its door listens, if it has one."""
        doors = (self.door, None if self.nemo_gym is None else self.nemo_gym.door)
        return tuple(door.bind for door in doors if door is not None)

    @property
    def llm_tokens(self) -> dict[str, str]:
        """The token to show to an LLM server, by its URL."""
        token = self.tokens.for_services
        return dict.fromkeys(self.proxies, token) if token else {}
