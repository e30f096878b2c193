"""Training runs on a virtual clock: the production sampler, with drawn or recorded trajectories."""
