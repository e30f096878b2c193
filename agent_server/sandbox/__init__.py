"""Where model-written code runs, and nowhere else."""
