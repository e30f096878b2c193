"""Programs that run inside the agent's sandbox, from their source text; they import nothing of
ours."""
