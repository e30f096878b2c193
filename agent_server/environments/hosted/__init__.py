"""Environments of other packages, each attempt in a process that can be killed."""
