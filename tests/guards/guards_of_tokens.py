"""The guards that keep a trajectory's tokens those that the policy was shown and sampled."""

from tests.guards.guard import Guard

TEMPLATE = "agent_server/agents/chat_template.py"
TRAITS = "tests/agent_server/templates/test_templates_in_the_field.py"
SPLIT = "tests/agent_server/test_split_trajectories.py"
LIMITED = "tests/access/test_limited_tokens.py"

GUARDS_OF_TOKENS = (
    Guard(
        "a conversation that the template rewrites begins a new sequence",
        "agent_server/agents/tool_loop.py",
        "        if rewritten is not None:\n",
        "        if rewritten is not None and not messages:\n",
        SPLIT,
    ),
    Guard(
        "what others repeat does not count as said by the assistant",
        TEMPLATE,
        'content=f"{QUESTION.content} {index}"',
        "content=said.content",
        SPLIT,
    ),
    Guard(
        "a sampled text begins no message when it is written anew",
        TEMPLATE,
        "self._frame.cut if message.role",
        "str if message.role",
        SPLIT,
    ),
    Guard(
        "a token that only closes turns in history stops no response",
        "agent_server/agents/turn_ends.py",
        "    unnamed = others if last is None or last not in named else {}\n",
        "    unnamed = others\n",
        TRAITS,
    ),
    Guard(
        "a template shows what is last by messages that differ",
        "agent_server/agents/rewriting.py",
        'content=f"{OBSERVED}, again"',
        "content=OBSERVED",
        TRAITS,
    ),
    Guard(
        "a template that raises on tools is not given them with an observation",
        TEMPLATE,
        "if self.traits.tells_of_tools else []",
        "",
        TRAITS,
    ),
    Guard(
        "the age of a trajectory counts the tokens of all its sequences",
        "orchestrator/queues/leases.py",
        "    sequences = result.trajectory.sequences if result.trajectory is not None else ()\n",
        "    sequences = (result.trajectory,) if result.trajectory is not None else ()\n",
        "tests/orchestrator/test_decisions.py",
    ),
    Guard(
        "a token for some runs opens no route that says nothing of runs",
        "serving/access.py",
        "    elif scope is None:\n",
        "    elif False:\n",
        LIMITED,
    ),
    Guard(
        "a token for some runs opens no path that names another",
        "serving/access.py",
        "        _check_opens(grant, named",
        "        str(named",
        LIMITED,
    ),
    Guard(
        "no body is read of a caller whose token is for other runs",
        "serving/admission.py",
        "                check_runs(grant, route.scope, named)\n",
        "",
        LIMITED,
    ),
    Guard(
        "metrics are of the runs of the token",
        "orchestrator/operator_routes.py",
        "render_metrics(own_status(orchestrator.status()))",
        "render_metrics(orchestrator.status())",
        LIMITED,
    ),
    Guard(
        "a token for some runs changes no weights that others sample with",
        "orchestrator/app.py",
        "        check_no_other_run(orchestrator.queues.runs)\n",
        "",
        LIMITED,
    ),
)
