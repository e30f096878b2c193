"""What every HTTP process here shares: one way to serve, to answer, to fail and to log."""
