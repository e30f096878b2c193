"""Rate at which Jobs are dispatched, and time until a free Slot works again."""
