"""A policy whose responses may be interrupted by parking, and go on as the same responses.

- The agent loop sees one Generation, however many parts it came in and whichever weights sampled
  them; the tokens of every part are kept with their logprobs and weight versions.
- A part's prompt is the Turn's prompt and the tokens of the parts before it.
- A part of which nothing came back is requested again.
"""

import msgspec

from agent_server.agents.protocol import Policy
from agent_server.control.deadline import Deadline
from agent_server.control.parking import Parking
from agent_server.control.stop import Stopped, StopReason, StopSignal
from llm_servers.generation import NOTHING, Generation, TurnRequest


class Resumable:
    """The `Policy` of one attempt."""

    def __init__(self, policy: Policy, parking: Parking, deadline: Deadline) -> None:
        self._policy = policy
        self._parking = parking
        self._deadline = deadline

    def generate(self, request: TurnRequest, stop: StopSignal) -> Generation:
        """One response, with the finish reason `abort` if the time ran out in the middle of it."""
        said = NOTHING
        try:
            while said.finish_reason == "abort":
                self._parking.stand(stop, self._deadline)
                rest = msgspec.structs.replace(request.after(said), until=self._deadline.ends_at)
                part = self._part(rest, stop)
                said = said.followed_by(part).ended_by(request)
        except Stopped as stopped:
            if stopped.reason is not StopReason.OUT_OF_TIME or not said.token_ids:
                raise
        return said

    def _part(self, request: TurnRequest, stop: StopSignal) -> Generation:
        """The next part of a response, until the response ends, is stopped or is to be parked."""
        either = StopSignal()
        with stop.giving(either), self._parking.order.giving(either):
            try:
                return self._policy.generate(request, either)
            except Stopped as stopped:
                if stopped.reason is not StopReason.PARKED:
                    raise
                return NOTHING
