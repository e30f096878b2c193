"""Rewards: pure functions from what a policy did to a number."""
