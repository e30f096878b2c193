"""The NeMo-Gym door: the contract of an agent server of NeMo-Gym, in front of the job runner."""
