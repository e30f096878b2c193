"""DAPO sampling as a pure state machine: events in, decisions out; no clock, no I/O, no randomness.

The simulator runs the same code on a virtual clock.
"""
