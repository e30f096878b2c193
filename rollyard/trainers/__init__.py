"""Adapters to trainers, a file or a folder each, and the core that all of them stand on.

`sequences` makes arrays of a Batch, `padding` and `packing` lay them out, `advantages` says what
each trajectory teaches, `steps` trains on each Batch once. An adapter imports nothing of its
trainer before it is used.
"""
