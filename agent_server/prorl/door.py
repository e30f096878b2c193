"""The ProRL door: each call of `/process` is a Job of its own, whose Result is the answer.

- Jobs come in while the door is open: between `/start` and `/stop`.
- Calls wait for the Slots that they share with the orchestrator's Jobs, in order of arrival.
- A Job ends at once if it is cancelled, if its caller hangs up, and with the door.
- `/stop` ends what came in through this door, and nothing else.
"""

import socket
import threading
from contextlib import nullcontext
from functools import partial

import msgspec

from agent_server.agents.protocol import Agent, MakeAgent, Task
from agent_server.control.stop import Stopped
from agent_server.failures import traceback_told
from agent_server.jobs.runner import JobRunner
from agent_server.jobs.shared_slots import SharedSlots
from agent_server.jobs.stage_limits import AllStages
from agent_server.jobs.stages import Stages
from agent_server.llm import LLMClient
from agent_server.metrics import Metrics
from agent_server.prorl.callers import Callers
from agent_server.prorl.calls import ProcessCall
from agent_server.prorl.llm_servers import BroughtLLMServers
from agent_server.prorl.messages import (
    DoorStatus,
    DoorStopped,
    ProcessAnswer,
    ProcessRequest,
)
from agent_server.prorl.names import environment_of
from agent_server.prorl.settings import DoorSettings
from rollyard.errors import Conflict, InvalidMessage, NotFound, Unavailable
from rollyard.messages import Outcome, Result


class ProrlDoor:
    """Owns the calls that are not answered, and the runner of their Jobs."""

    def __init__(
        self,
        settings: DoorSettings,
        stages: Stages,
        llm: BroughtLLMServers,
        slots: SharedSlots,
    ) -> None:
        self.llm = llm
        self.tokens = settings.tokens
        self.metrics = Metrics()
        self._settings = settings
        self._environments = stages.environments
        noted = {name: partial(self._note_task, make) for name, make in stages.agents.items()}
        stages = msgspec.structs.replace(stages, agents=noted, policy=llm)
        self._slots = slots
        self._runner = JobRunner(
            settings.runner,
            stages,
            self.metrics,
            self._report,
            limits=AllStages(),
            rooms=slots.rooms(slots.doors),
            failed=self._note_failure,
        )
        self._callers = Callers()
        self._changed = threading.Condition()
        self._open = False
        self._calls: dict[str, ProcessCall] = {}

    def start(self) -> None:
        with self._changed:
            if self._open:
                raise InvalidMessage("the server is running already")
            self._open = True
            self._slots.open(self._settings.share)

    def stop(self) -> DoorStopped:
        """Close the door, and end every Job that came in through it."""
        with self._changed:
            self._check_open()
            self._close()
            calls = tuple(self._calls.values())
        for call in calls:
            call.end(Unavailable("the job was ended by /stop"))
        with self._changed:
            self._changed.wait_for(
                lambda: not any(call.name in self._calls for call in calls),
                self._settings.stop_seconds,
            )
            ending = tuple(call.job_id for call in calls if call.name in self._calls)
        ended = tuple(call.job_id for call in calls if call.job_id not in ending)
        return DoorStopped(status="stopped", ended=ended, ending=ending)

    def process(self, request: ProcessRequest, caller: socket.socket | None) -> ProcessAnswer:
        """The answer to the call, once its Job has ended."""
        call, result = self.run(request, caller)
        return call.answer(result)

    def run(
        self, request: ProcessRequest, caller: socket.socket | None, group_id: str = ""
    ) -> tuple[ProcessCall, Result]:
        """The call and its Result, once its Job has ended. Raises what stopped it."""
        call = self._admit(request, group_id)
        gone = partial(call.end, Conflict("the caller hung up"))
        try:
            with nullcontext() if caller is None else self._callers.watching(caller, gone):
                result = self._result(call)
        except Stopped:
            result = None
        finally:
            self._forget(call)
        if call.error is not None:
            raise call.error
        assert result is not None
        if result.outcome is Outcome.CANCELLED:
            raise Unavailable(result.error)
        return call, result

    def cancel(self, job_id: str) -> None:
        with self._changed:
            self._check_open()
            calls = [call for call in self._calls.values() if call.job_id == job_id]
        if not calls:
            raise NotFound(f"no job {job_id[:100]!r} waits or runs here")
        for call in calls:
            call.end(Conflict(f"the job {job_id!r} was cancelled"))

    def status(self) -> DoorStatus:
        with self._changed:
            self._check_open()
        stages = self._runner.status("").stages
        running, pending = self._slots.doors.busy, self._slots.doors.waiting
        return DoorStatus(
            status="running",
            pending_jobs=pending,
            running=running,
            jobs=running + pending,
            **stages,
        )

    def drain(self) -> None:
        """Close the door for good, without waiting."""
        threading.Thread(target=self._shut, name="prorl-drain", daemon=True).start()

    def close(self, wait_seconds: float) -> None:
        self._shut()
        self._runner.close(wait_seconds)
        self._callers.close()
        self.llm.close()

    def _admit(self, request: ProcessRequest, group_id: str) -> ProcessCall:
        with self._changed:
            self._check_open()
        environment = environment_of(request.instance, self._environments)
        call = ProcessCall(
            request,
            environment,
            self._settings.job_seconds,
            run_id=self._settings.run_id,
            group_id=group_id,
        )
        self.llm.check()
        with self._changed:
            self._check_open()
            if any(other.job_id == call.job_id for other in self._calls.values()):
                raise Conflict(
                    f"the job {call.job_id!r} waits or runs here already",
                    fix="cancel it first, or give the new one an id of its own",
                )
            if len(self._calls) >= self._settings.most_calls:
                raise Unavailable(
                    f"{self._settings.most_calls} calls are not answered yet",
                    fix="send it again later, or to another server",
                )
            self._slots.doors.enter(call.lease)
            self._calls[call.name] = call
        return call

    def _result(self, call: ProcessCall) -> Result:
        # Before it is the runner's: what waits here has no sandbox yet.
        self._slots.doors.wait(call.lease, call.stop, self._settings.waiting_seconds)
        self._runner.accept(call.assignment)
        call.accepted = True
        with call.stop.interrupting(partial(self._runner.cancel, call.lease)):
            return call.result.result()  # every Lease has a Result, in time: see the runner

    def _forget(self, call: ProcessCall) -> None:
        if not call.accepted:  # else its attempt has the Slot until it is through
            self._slots.doors.leave(call.lease)
        with self._changed:
            del self._calls[call.name]
            self._changed.notify_all()

    def _report(self, result: Result) -> None:
        with self._changed:
            self._calls[result.lease.job_id].result.set_result(result)

    def _note_failure(self, result: Result, error: BaseException) -> None:
        with self._changed:
            call = self._calls.get(result.lease.job_id)
        if call is not None:  # else it was given up, and returned all the same
            call.traceback = traceback_told(error, result.error)

    def _note_task(self, make: MakeAgent, task: Task) -> Agent:
        with self._changed:
            self._calls[task.job.job_id].task = task
        return make(task)

    def _check_open(self) -> None:
        if not self._open:
            raise Unavailable("the server is not running", fix="call /start first")

    def _close(self) -> None:
        self._open = False
        self._slots.close()

    def _shut(self) -> None:
        with self._changed:
            self._close()
            calls = tuple(self._calls.values())
        for call in calls:
            call.end(Unavailable("this agent server is shutting down"))


def make_door(
    settings: DoorSettings | None, stages: Stages, own: LLMClient, slots: SharedSlots
) -> ProrlDoor | None:
    """The door of an agent server whose `own` LLM servers these are; None if it stays shut."""
    if settings is None:
        return None
    return ProrlDoor(settings, stages, BroughtLLMServers(own), slots)
