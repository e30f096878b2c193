"""Rewards: pure functions that give a number for a policy's answer."""
