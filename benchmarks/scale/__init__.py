"""Costs of large numbers: of Jobs queued, Jobs in flight, tokens in a Result."""
