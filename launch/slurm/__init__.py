"""Rollyard as a job of Slurm."""
