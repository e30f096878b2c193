"""Tools that a policy can call. What it wrote runs in the sandbox and nowhere else."""
