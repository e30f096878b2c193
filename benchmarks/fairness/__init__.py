"""Many Runs on the same Slots: their shares, the wait of a small one, and what many cost."""
