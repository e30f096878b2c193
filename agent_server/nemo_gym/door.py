"""The NeMo-Gym door: each call of `/run` is a Job, and its trajectory and reward are the answer.

- It is open while the agent server is, and lets calls wait rather than refuse them: NeMo-Gym's
  collector gives up all rollouts at the first refusal.
- What the infrastructure fails is tried again, and then refused: 5xx, never a reward. What the row
  is to blame for is refused at once: 4xx.
"""

import socket
import sys
import threading
import time
from typing import Any

import msgspec

from agent_server.jobs.shared_slots import SharedSlots
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient
from agent_server.metrics import Metrics
from agent_server.nemo_gym.messages import RunAnswer
from agent_server.nemo_gym.rows import as_request, task_of
from agent_server.nemo_gym.settings import NemoGymSettings
from agent_server.nemo_gym.trajectories import answer
from agent_server.prorl.calls import ProcessCall
from agent_server.prorl.door import ProrlDoor
from agent_server.prorl.llm_servers import BroughtLLMServers
from agent_server.prorl.messages import ProcessRequest
from rollyard.errors import InvalidMessage, LLMUnavailable, Unavailable
from rollyard.messages import Blame, Outcome, Result
from rollyard.tokens import Tokens

RUN_ID = "~nemo-gym"
"""The run of all these Jobs; no Run can have this name."""
_WAITING_SECONDS = 24 * 3600.0
"""A step's rollouts are all sent at once."""


class NemoGymDoor:
    """Owns the ProRL door through which its Jobs go, and which no other caller knows."""

    def __init__(
        self, settings: NemoGymSettings, stages: Stages, own: LLMClient, slots: SharedSlots
    ) -> None:
        self._settings = settings
        door = msgspec.structs.replace(
            settings.door,
            run_id=RUN_ID,
            waiting_seconds=_WAITING_SECONDS,
            most_calls=sys.maxsize,  # what is beyond the threads waits for one
        )
        self._door = ProrlDoor(door, stages, BroughtLLMServers(own), slots)
        self._closing = threading.Event()

    @property
    def tokens(self) -> Tokens:
        return self._door.tokens

    @property
    def metrics(self) -> Metrics:
        return self._door.metrics

    @property
    def config(self) -> dict[str, Any]:
        """NeMo-Gym's description of where this agent server is, by the name `rollyard`."""
        _, _, address = self._settings.door.bind.url.partition("://")
        host, _, port = address.rpartition(":")
        place = {"host": host, "port": int(port)}
        return {"rollyard": {"responses_api_agents": {"rollyard": place}}}

    def start(self) -> None:
        """Take Jobs from now on."""
        self._door.start()

    def run(self, row: dict[str, Any], caller: socket.socket | None) -> RunAnswer:
        """The answer to the row, once its Job has ended. Raises what is to be refused."""
        request, group_id = as_request(row, self._settings.max_turns), task_of(row)
        for attempt in range(1, self._settings.attempts + 1):
            call, result = self._attempt(request, caller, group_id)
            if result.outcome is Outcome.COMPLETED:
                assert result.grade is not None
                assert result.trajectory is not None
                assert call.task is not None
                return answer(row, result.grade, result.trajectory, call.task)
            if result.blame is Blame.ROW:
                raise InvalidMessage(result.error)
            if attempt < self._settings.attempts:
                self._pause()
        raise Unavailable(f"no attempt of {self._settings.attempts} succeeded: {result.error}")

    def drain(self) -> None:
        """Close the door for good, without waiting."""
        self._closing.set()
        self._door.drain()

    def close(self, wait_seconds: float) -> None:
        self._closing.set()
        self._door.close(wait_seconds)

    def _attempt(
        self, request: ProcessRequest, caller: socket.socket | None, group_id: str
    ) -> tuple[ProcessCall, Result]:
        """One attempt, once the LLM servers are ready."""
        give_up = time.monotonic() + self._settings.llm_seconds
        while True:
            try:
                return self._door.run(request, caller, group_id)
            except LLMUnavailable as error:
                if time.monotonic() > give_up:
                    raise Unavailable(error.message) from error
            self._pause()

    def _pause(self) -> None:
        if self._closing.wait(self._settings.pause_seconds):
            raise Unavailable("this agent server is shutting down")


def make_nemo_gym_door(
    settings: NemoGymSettings | None, stages: Stages, own: LLMClient, slots: SharedSlots
) -> NemoGymDoor | None:
    """The door of an agent server whose `own` LLM servers these are; None if it stays shut."""
    return None if settings is None else NemoGymDoor(settings, stages, own, slots)
