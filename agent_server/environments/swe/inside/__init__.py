"""Programs that run inside the sandbox that grades, from their source text; they import nothing of
ours."""
