"""DAPO sampling as a pure state machine: events in, decisions out; no clock, no I/O, no chance.

The simulator runs this very code on a virtual clock.
"""
