"""The guards that keep what LLM servers answer exact, whatever form it comes in."""

from tests.guards.guard import Guard

DIALECTS = "tests/llm_servers/test_dialects.py"

GUARDS_OF_DIALECTS = (
    Guard(
        "a response is not sampled anew for whoever has heard a part of it",
        "agent_server/llm.py",
        "        if self.tokens:\n",
        "        if self.tokens < 0:\n",
        "tests/agent_server/test_llm.py",
    ),
    Guard(
        "a response is cut behind the first token that ends it",
        "llm_servers/dialects/prorl.py",
        "    return next(ends, len(tokens))\n",
        "    return len(tokens)\n",
        DIALECTS,
    ),
    Guard(
        "no response goes on behind a token that ends it",
        "llm_servers/responses.py",
        "        not any(token in request.stop_token_ids for token in generation.token_ids[:-1])",
        "        True",
        "tests/llm_servers/test_generation.py",
    ),
    Guard(
        "a version that nobody told is marked",
        "llm_servers/responses.py",
        "    return (WeightSpan(version=version, start=0, end=tokens, assumed=True),)\n",
        "    return (WeightSpan(version=version, start=0, end=tokens),)\n",
        DIALECTS,
    ),
    Guard(
        "no token seems newer than it is",
        "llm_servers/responses.py",
        "min(last, version)",
        "last",
        DIALECTS,
    ),
    Guard(
        "parts whose versions were told and assumed stay apart",
        "rollyard/messages/trajectory.py",
        "        return (self.version, self.assumed, self.logprobs) == (\n",
        "        return (self.version, other.assumed, other.logprobs) == (\n",
        DIALECTS,
    ),
)
