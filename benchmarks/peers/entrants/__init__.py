"""The services, each used as its own documentation says for rollouts of RL.

Each is a program of its own environment: it starts its service, says which of its processes are
workers, plays the episodes once it is told to, says each result as it comes, and ends what it
started (`entrant.py`).
"""
