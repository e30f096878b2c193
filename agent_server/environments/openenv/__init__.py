"""Environments that OpenEnv servers run, each trajectory in a session of its own."""
