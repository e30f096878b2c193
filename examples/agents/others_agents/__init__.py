"""Agents of other people as environments, and the programs that two of them are."""
