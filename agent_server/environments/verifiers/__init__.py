"""Environments of the `verifiers` library, played in the sandbox of the attempt."""
