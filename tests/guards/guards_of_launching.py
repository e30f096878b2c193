"""The guards that stand in the launcher, and in how work is spread over LLM servers."""

from tests.guards.guard import Guard

RESTARTS = "tests/launch/test_restarts.py"

GUARDS_OF_LAUNCHING = (
    Guard(
        "deaths are in a row only without health between them",
        "launch/restarts.py",
        "deaths = 1 if healthy else self.deaths + 1",
        "deaths = self.deaths + 1",
        RESTARTS,
    ),
    Guard(
        "a part that cannot live is given up",
        "launch/restarts.py",
        "given_up = deaths > policy.max_deaths",
        "given_up = False",
        RESTARTS,
    ),
    Guard(
        "a part that is given up ends alone",
        "launch/restarts.py",
        "if all(part.state is PartState.GIVEN_UP",
        "if any(part.state is PartState.GIVEN_UP",
        RESTARTS,
    ),
    Guard(
        "what a dead part left of its group is killed",
        "launch/processes.py",
        "        started.kill()\n        self._started.remove(started)\n",
        "        self._started.remove(started)\n",
        "tests/launch/test_supervisor.py",
    ),
    Guard(
        "over a run all LLM servers are given the same",
        "agent_server/routing.py",
        "choose(group, healthy or load, self._ahead(), self._shares)",
        "choose(group, healthy or load, (), self._shares)",
        "tests/agent_server/test_routing.py",
    ),
    Guard(
        "no node is judged by a time in which nobody could have heard it",
        "launch/roll_call.py",
        "if silence is None or since > MOST_SECONDS:",
        "if False:",
        "tests/launch/test_roll_call.py",
    ),
    Guard(
        "planned again, what can stay stays",
        "launch/replanning.py",
        "            before=msgspec.structs.replace(before, agent_servers=tuple(there)),\n",
        "",
        "tests/launch/test_replanning.py",
    ),
    Guard(
        "an agent server that could not be told is told later",
        "launch/fleet_keeper.py",
        "                if done:\n",
        "                if True:\n",
        "tests/launch/test_fleet_keeper.py",
    ),
    Guard(
        "nobody waits for the answer of a server that is gone",
        "agent_server/llm.py",
        "        for url in servers.gone:\n",
        "        for url in ():\n",
        "tests/agent_server/test_llm.py",
    ),
)
