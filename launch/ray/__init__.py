"""Rollyard on a cluster of Ray. `launch.ray.cluster` alone imports Ray."""
