"""What every HTTP process here shares: one way to serve, answer, fail, retry and log."""
