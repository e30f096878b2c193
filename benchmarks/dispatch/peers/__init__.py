"""Alternatives, each used as its own manual recommends. They run in `.venv-bench`.

Each is a program of its own: it starts what it needs, warms up, runs `--jobs` no-op jobs with a
prompt for an argument, from the first submission to the last result, stops what it started and
prints `{"jobs": ..., "seconds": ...}`.
"""
