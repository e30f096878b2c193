"""The orchestrator as a whole: the only module that knows all its parts and connects them."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import msgspec
import structlog

from orchestrator.addresses import Addresses
from orchestrator.agent_servers import AgentServers
from orchestrator.collector import Collector
from orchestrator.dispatcher import Dispatcher
from orchestrator.knocking import Knocking
from orchestrator.lender import Lender
from orchestrator.llm_nodes import LLMNodes
from orchestrator.loops import run_through_outages
from orchestrator.occupancy import OccupancyHistory
from orchestrator.operators import Operators
from orchestrator.queues import Queues
from orchestrator.reaper import Reaper
from orchestrator.trainers import Trainers
from rollyard.errors import OtherStateVersion, StaleAttempt
from rollyard.messages import (
    AgentServer,
    FleetStatus,
    LLMNode,
    PackedResult,
    Receipt,
    Registered,
    Reported,
    Result,
    ToServe,
    check_url,
)
from serving.declaration import OnWire
from serving.gunicorn import ENDED_FOR_GOOD

log = structlog.get_logger()

SENDERS = 32
"""Threads that send Jobs and orders to agent servers; each call is one short round trip."""


class Orchestrator:
    """The running orchestrator. It starts its threads when made, and `close` ends them. All its
    state is in Redis.

    `token` is presented to agent servers and LLM nodes.
    """

    def __init__(
        self, queues: Queues, *, token: str = "", addresses: Addresses | None = None
    ) -> None:
        self.queues = queues
        self.trainers = Trainers(queues)
        self.operators = Operators(queues)
        self.llm_nodes = LLMNodes(queues.weights, queues.epochs, token)
        self.occupancy = OccupancyHistory(queues.servers)
        self._addresses = addresses or Addresses()
        self._senders = ThreadPoolExecutor(SENDERS, thread_name_prefix="sender")
        self._agents = AgentServers(queues.servers, self._senders, token)
        self._stopping = threading.Event()
        collector = Collector(queues.events, queues.runs, self._agents.push)
        leases, send, changed = queues.leases, self._agents.send, self.occupancy.changed
        recall = self._agents.recall
        dispatcher = Dispatcher(leases, queues.servers, send, self._senders, changed, recall)
        knocking = Knocking(queues.servers, leases.lease_seconds)
        reaper = Reaper(leases, queues.runs, knocking.ended)
        lender = Lender(leases, self._agents.push)
        for part in (collector, dispatcher, reaper, lender, self.occupancy):
            self._start(part.run)

    def register(self, server: AgentServer, caller: str) -> Registered:
        """Register an agent server that calls from the address `caller`. Raises `Forbidden` and
        `Unavailable` for an address that it may not register."""
        url = self._addresses.checked(server.url, caller)
        server = msgspec.structs.replace(server, url=url)
        self.queues.servers.register(server)
        self._agents.know(server)
        self.occupancy.changed()
        log.info("agent_server_registered", server_id=server.server_id, slots=server.slots)
        return Registered(published=self.queues.weights.version())

    def llm_heartbeat(self, node: LLMNode, caller: str) -> ToServe:
        """Note the heartbeat of an LLM node that calls from the address `caller`. Raises
        `Forbidden` and `Unavailable` as `register`."""
        check_url(node.url)  # trainers, which have none, announce themselves elsewhere
        url = self._addresses.checked(node.url, caller)
        proxy = self._addresses.checked(node.proxy, caller) if node.proxy else ""
        return self.llm_nodes.heartbeat(msgspec.structs.replace(node, url=url, proxy=proxy))

    def report(
        self, results: Annotated[list[PackedResult], OnWire(list[Result])], *, more: bool = False
    ) -> list[Reported]:
        """Store the Results of attempts, and return an answer for each, which with `more` may bring
        the next Job of its Slot. Raises `StaleAttempt` if no attempt holds its Lease any more."""
        answers = self.queues.leases.report(results, more=more)
        self.occupancy.changed()
        for result, answer in zip(results, answers, strict=True):
            if answer.receipt in (Receipt.REQUEUED, Receipt.DEAD):
                log.warning(
                    "attempt_failed",
                    job_id=result.lease.job_id,
                    receipt=answer.receipt,
                    error=result.error,
                )
        if answers and all(answer.receipt is Receipt.STALE for answer in answers):
            names = ", ".join(f"{r.lease.job_id} attempt {r.lease.attempt}" for r in results[:3])
            raise StaleAttempt(f"the lease was lost: {names}")
        return answers

    def status(self) -> FleetStatus:
        """Status of all Runs, agent servers and LLM nodes."""
        self.queues.store.check_answers()
        servers, serving = self.queues.connection.ask_together(
            self.queues.servers.statuses(), self.queues.weights.serving()
        )
        return FleetStatus(
            runs=self.trainers.statuses(),
            servers=servers,
            llm_nodes=serving.nodes,
            llm_silence=serving.silent_seconds,
        )

    def close(self) -> None:
        self._stopping.set()
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _start(self, loop: Callable[[threading.Event], None]) -> None:
        def guarded() -> None:
            try:
                run_through_outages(loop, self._stopping)
            except OtherStateVersion as error:  # the Redis did not answer when it was checked
                log.error("orchestrator_ends", error=str(error))
                os._exit(ENDED_FOR_GOOD)
            except Exception:
                if self._stopping.is_set():  # the senders are shut down: heartbeats repeat it
                    return
                # Without this thread the orchestrator would wait for ever; a restarted one
                # continues from the state in Redis.
                log.exception("orchestrator_thread_died", thread=threading.current_thread().name)
                os._exit(1)

        threading.Thread(target=guarded, name=loop.__qualname__, daemon=True).start()
