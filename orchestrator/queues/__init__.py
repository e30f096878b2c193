"""The three queues of a Rollyard: tasks, free Slots, results."""
