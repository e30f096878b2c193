"""A stand-in for one LLM server, vLLM or another: the same HTTP contract, a scripted policy, no
model.

Tests and failure drills use it where a real server would be slow, or could not be made to fail.
"""
