"""The same episodes by Rollyard and by rollout services of others, undisturbed and under faults."""
