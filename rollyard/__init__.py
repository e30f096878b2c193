"""Rollyard: a rollout service for agentic reinforcement learning. Import this in a trainer."""
