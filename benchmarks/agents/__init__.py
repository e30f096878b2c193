"""Benchmarks of what agents do besides talking: sandboxes, tools, rewards."""
