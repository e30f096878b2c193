"""What dynamic sampling costs a training step: ours, the published design, batch by batch."""
