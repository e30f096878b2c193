"""Cost of dynamic sampling for a training step: ours, the published design, batch by batch."""
