"""What it costs to have much: Jobs queued, Jobs in flight, tokens in a Result."""
