"""Costs of Rollyard, beside its alternatives. Benchmarks report figures, and are never tests."""
