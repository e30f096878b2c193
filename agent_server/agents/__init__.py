"""Agents: what drives a policy through an environment, token by token."""
