"""The guards that stand in the sampler: its accounts, its memory and its order."""

from tests.guards.guard import Guard

SAMPLING = "orchestrator/sampling"
TESTS = "tests/orchestrator/sampling/test_accounts.py"

GUARDS_OF_SAMPLING = (
    Guard(
        "batches acknowledged of late are known",
        f"{SAMPLING}/batches.py",
        "[*state.acknowledged, event.batch_id][-MAX_ACKNOWLEDGED_KNOWN:]",
        "[event.batch_id]",
        TESTS,
    ),
    Guard(
        "a discarded group's time is booked",
        f"{SAMPLING}/batches.py",
        "            state.ledger.cancelled += state.group(name).seconds\n",
        "",
        TESTS,
    ),
    Guard(
        "a batch's members are sorted",
        f"{SAMPLING}/batches.py",
        "members=tuple(sorted(members))",
        "members=tuple(members)",
        TESTS,
    ),
    Guard(
        "surplus is booked",
        f"{SAMPLING}/batches.py",
        "surplus=sum(each.seconds for each in state.members(state.ready))",
        "surplus=0.0",
        TESTS,
    ),
    Guard(
        "a dead group's time is booked",
        f"{SAMPLING}/judges.py",
        "        self._state.ledger.cancelled += group.seconds\n",
        "",
        TESTS,
    ),
    Guard(
        "later groups of a row do not count for all rows",
        f"{SAMPLING}/judges.py",
        "        if group.tried is None:\n",
        "        if True:\n",
        TESTS,
    ),
    Guard(
        "a group that is cut short teaches",
        f"{SAMPLING}/judges.py",
        "return [*self._learn(group, rewards), Drop(group_ids=(name,), why=Why.CUT_SHORT)]",
        "return [Drop(group_ids=(name,), why=Why.CUT_SHORT)]",
        TESTS,
    ),
    Guard(
        "launch order is not the order of names",
        f"{SAMPLING}/judges.py",
        "sorted(state.complete, key=lambda name: state.complete[name].number)",
        "sorted(state.complete)",
        TESTS,
    ),
    Guard(
        "the ledger forgets",
        f"{SAMPLING}/ledger.py",
        "            each.finished *= _KEPT\n",
        "",
        TESTS,
    ),
    Guard(
        "a lost attempt no longer counts as begun",
        f"{SAMPLING}/sampler.py",
        "        self.state.begun.pop(event.job_id, None)\n        if event.ending",
        "        if event.ending",
        TESTS,
    ),
    Guard(
        "a late result is booked",
        f"{SAMPLING}/sampler.py",
        "            state.ledger.cancelled += event.seconds\n",
        "",
        TESTS,
    ),
    Guard(
        "a trajectory that moves has its prefix computed where it goes",
        "simulator/fleet/machines.py",
        "if journey.cached_on == llm.name:",
        "if journey.cached_on:",
        "tests/simulator/test_fleet.py",
    ),
    Guard(
        "tools slow each other down on the node that they run on",
        "simulator/fleet/machines.py",
        "min(most, node.cpus / tools)",
        "most",
        "tests/simulator/test_fleet.py",
    ),
)
