"""The three queues of a Rollyard: tasks, free Slots, results. Redis and in-memory twins."""
