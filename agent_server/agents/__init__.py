"""Agents, which drive a policy through an environment, token by token."""
