"""The chaos run: real processes under seeded faults, and an offline check of what was recorded."""
