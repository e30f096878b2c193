"""How fast Jobs are dispatched, and how soon a free Slot works again."""
