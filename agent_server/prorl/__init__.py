"""The ProRL door: the public contract of ProRL's agent server, in front of the same job runner."""
