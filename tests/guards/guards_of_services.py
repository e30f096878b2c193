"""The guards that stand in the services and in the client."""

from tests.guards.guard import Guard

ROLLOUTS = "tests/orchestrator/test_rollouts.py"
ROW_FAILURES = "tests/orchestrator/test_row_failures.py"
AGENT_PARKING = "tests/agent_server/test_parking.py"
SAMPLER = "tests/orchestrator/sampling"

GUARDS_OF_SERVICES = (
    Guard(
        "no job is sent to a lost slot",
        "orchestrator/queues/scripts/_servers.lua",
        "    if taken + number('spared', server) >= room(server) then return end\n",
        "",
        "tests/orchestrator/test_lost_slots.py",
    ),
    Guard(
        "a run whose groups die asks for no more prompts",
        "orchestrator/why.py",
        "    if failing(run):\n        return 0\n",
        "",
        ROW_FAILURES,
    ),
    Guard(
        "while others run a few deaths prove nothing",
        "orchestrator/failing.py",
        "max(run.settings.failing_groups, run.open_groups)",
        "run.settings.failing_groups",
        ROW_FAILURES,
    ),
    Guard(
        "a batch is fetched by the trainer of its run",
        "orchestrator/trainers.py",
        "        self._queues.epochs.check(run_id, epoch)\n"
        "        run = self._queues.runs.read(run_id)\n"
        "        if batch_id not in run.state.outstanding:\n",
        "        run = self._queues.runs.read(run_id)\n"
        "        if batch_id not in run.state.outstanding:\n",
        "tests/orchestrator/test_one_trainer.py",
    ),
    Guard(
        "at most so many batches are outstanding",
        "orchestrator/trainers.py",
        "            _check_outstanding(run)\n",
        "",
        "tests/orchestrator/test_batches_ahead.py",
    ),
    Guard(
        "the collector reads the state before the events",
        "orchestrator/queues/events.py",
        "        state = run.state\n",
        "        run = self._runs.read(run_id)\n        state = run.state\n",
        "tests/orchestrator/test_collector.py",
    ),
    Guard(
        "a prompt fed after the close is dropped",
        "orchestrator/sampling/sampler.py",
        "        if state.closed:\n            return [Drop(group_ids=(name,), why=Why.CLOSED)]\n",
        "",
        SAMPLER,
    ),
    Guard(
        "a prompt fed during the delivery is not kept where nothing is",
        "orchestrator/sampling/sampler.py",
        "return self._batches.put_aside() if late and discards else []",
        "return []",
        SAMPLER,
    ),
    Guard(
        "a batch is requested once",
        "orchestrator/sampling/batches.py",
        "        if state.closed or state.knows(event.batch_id):",
        "        if state.closed:",
        SAMPLER,
    ),
    Guard(
        "a restarted orchestrator hears before it judges",
        "orchestrator/reaper.py",
        "                    self._leases.renew()\n",
        "                    pass\n",
        "tests/orchestrator/test_reaper.py",
    ),
    Guard(
        "a batch is fetched again after a crash",
        "rollyard/training_run.py",
        "        status = self._go_on(self._reconciled(self._checked_status()))",
        "        return self._new_request(requested_batch_size)",
        ROLLOUTS,
    ),
    Guard(
        "an acknowledgement may be repeated",
        "orchestrator/trainers.py",
        "        if batch_id not in state.outstanding:\n            return\n",
        "",
        ROLLOUTS,
    ),
    Guard(
        "retries are jittered",
        "rollyard/backoff.py",
        "random.uniform(0.0, delay)",
        "delay",
        "tests/rollyard/test_backoff.py",
    ),
    Guard(
        "a result is sent again until it is taken",
        "agent_server/outbox.py",
        "            if self._closed.wait(delay):\n                return None\n",
        "            return None\n",
        "tests/agent_server/test_reporting.py",
    ),
    Guard(
        "a forgotten server registers again",
        "agent_server/presence.py",
        "        elif not reply.known:",
        "        elif False:",
        "tests/agent_server/test_reporting.py",
    ),
    Guard(
        "the same lease runs once",
        "agent_server/jobs/runner.py",
        "            if attempt.key in self._attempts:\n                return\n",
        "",
        "tests/agent_server/test_runner.py",
    ),
    Guard(
        "a weight version rises",
        "llm_servers/weights.py",
        "        if wanted.version <= self.version and wanted != self._published:",
        "        if False:",
        "tests/llm_servers/test_weight_update.py",
    ),
    Guard(
        "a full Redis takes what keeps jobs alive",
        "orchestrator/queues/connection.py",
        'return "#!lua flags=allow-oom\\n" if script in RUN_WITHOUT_MEMORY else "#!lua\\n"',
        'return "#!lua\\n"',
        "tests/faults/test_refused_moves.py",
    ),
    Guard(
        "a move is refused before it begins",
        "orchestrator/queues/connection.py",
        'if script in RUN_WITHOUT_MEMORY else "#!lua\\n"',
        'if script in RUN_WITHOUT_MEMORY else ""',
        "tests/faults/test_refused_moves.py",
    ),
    Guard(
        "an order that a push has overtaken does not count",
        "agent_server/control/parking.py",
        "        return as_of >= self._pushed_at\n",
        "        return True\n",
        AGENT_PARKING,
    ),
    Guard(
        "nothing stands still for ever",
        "agent_server/control/parking.py",
        "                self._longest_seconds,\n            )\n",
        "            )\n",
        AGENT_PARKING,
    ),
    Guard(
        "time parked does not count against the deadline",
        "agent_server/control/parking.py",
        "self._standing_still(), deadline.held(),",
        "self._standing_still(),",
        AGENT_PARKING,
    ),
    Guard(
        "a parked request that failed is asked again later",
        "agent_server/llm.py",
        "                if stop.reason is StopReason.PARKED:",
        "                if False:",
        "tests/agent_server/test_llm.py",
    ),
    Guard(
        "what a heartbeat does not name parked goes on",
        "agent_server/presence.py",
        "                self._workload.resume(lease, asked_at)\n",
        "                pass\n",
        "tests/agent_server/test_parking.py tests/agent_server/test_reporting.py",
    ),
    Guard(
        "what is too old for the next batch begins again",
        "orchestrator/sampling/batches.py",
        "        return self._refresh() + (self.deliver_if_complete() or [Open()])",
        "        return self.deliver_if_complete() or [Open()]",
        SAMPLER,
    ),
    Guard(
        "a member that comes too old begins again",
        "orchestrator/sampling/batches.py",
        "        restart, judged = self._restart(name, members), Decisions()\n"
        "        if member not in members:\n",
        "        restart, judged = Decisions(), Decisions()\n        if True:\n",
        SAMPLER,
    ),
    Guard(
        "a batch requested ahead updates later weights",
        "orchestrator/trainers.py",
        "self._queues.weights.version() + len(run.state.outstanding)",
        "self._queues.weights.version()",
        "tests/orchestrator/test_batches_ahead.py",
    ),
    Guard(
        "weights are written down before any node hears of them",
        "orchestrator/llm_nodes.py",
        "        self._weights.publish(update, run_id, epoch=epoch)\n",
        "",
        "tests/orchestrator/test_llm_nodes.py",
    ),
    Guard(
        "a feed that is put back names its prompts as before",
        "rollyard/feeder.py",
        "            self._session, self._rows_drawn = state.session, state.rows_drawn\n",
        "            self._rows_drawn = state.rows_drawn\n",
        "tests/rollyard/test_feed_restarts.py",
    ),
    Guard(
        "a feed that is put back feeds first what was unfinished",
        "rollyard/feeder.py",
        "            self._drawn = list(state.prompts)\n",
        "",
        "tests/rollyard/test_feed_restarts.py",
    ),
    Guard(
        "one thread at a time feeds a run",
        "rollyard/feeding_ahead.py",
        "            self._changed.wait_for(lambda: not self._feeding)\n",
        "",
        "tests/rollyard/test_feeding_ahead.py",
    ),
)
