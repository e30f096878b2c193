"""Jobs: the life of an attempt, from its Lease to its Result."""
