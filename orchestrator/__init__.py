"""The orchestrator: three queues, a dispatcher, a collector with the DAPO sampler, one HTTP API."""
